"""Walks the log, block by block, against its checksums, and keeps what it finds.

It reads at scrubBytesPerSecond, off the hot path, and begins again scrubIntervalHours after it
began; how far it is, is kept over restarts in ``store/mqstore/scrub.json``. What it finds is told
to readers by a new epoch, so that no block that was whole before is believed any more.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.alias_generators import to_camel

from mqstore.storage._kernel import check_block
from mqstore.storage.layout import BLOCK_SIZE
from mqstore.storage.mapped.mapped_file import MappedFile
from mqstore.storage.mapped.mapped_file_queue import MappedFileQueue
from mqstore.storage.opening import Opened
from mqstore.storage.own import sealed_json
from mqstore.storage.scrub.finding import Finding, explain
from mqstore.storage.seams import FileSystem, Seams
from mqstore.storage.system.atomic_file import replace_file

FINDINGS_MAX: Final = 100
"""Findings that are kept; the count goes on."""
CHUNK_MAX: Final = 4 << 20
"""Bytes of one step."""
SAVE_EVERY: Final = 256 << 20
"""Bytes after which the progress is noted."""
LOOK_AGAIN_S: Final = 3_600.0
"""The clock may be stepped: how long a wait for the next pass is at most."""
MS_PER_HOUR: Final = 3_600_000

log = logging.getLogger(__name__)


class ScrubProgress(BaseModel):
    """Offsets are physical, sizes in bytes, times in milliseconds since the epoch."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, frozen=True)

    position: int | None = None
    """Up to where this pass has looked; null while none runs."""
    began_at_ms: int = 0
    """When this pass began, or the last one did."""
    checked_bytes: int = 0
    """Of this pass, or of the last one: what is covered by checksums."""
    last_pass_ended_at_ms: int | None = None
    finding_count: int = 0
    """Of this pass and, until it has come so far, of the one before."""
    findings: tuple[Finding, ...] = ()
    """The first 100 of them."""


class Scrub:
    """A ``BackgroundService``; ``progress`` and ``request`` are for any thread."""

    name = "scrub"

    def __init__(
        self,
        opened: Opened,
        log_files: MappedFileQueue,
        seams: Seams,
        on_damage: Callable[[], object],
    ) -> None:
        """``on_damage`` is called after something was found that was not known."""
        self._files = seams.files
        self._clock = seams.clock
        self._path = opened.paths.scrub
        self.progress = _load(self._files, self._path)
        self._log = log_files
        self._blocks = opened.blocks
        self._rate = opened.config.scrub_bytes_per_second
        self._interval_ms = opened.config.scrub_interval_hours * MS_PER_HOUR
        self._on_damage = on_damage
        self._requested = False
        self._unsaved = 0

    def request(self) -> ScrubProgress:
        """Have a pass begin at the next step, unless one runs."""
        self._requested = True
        return self.progress

    def step(self, now: float) -> float:
        """Look at some blocks, or wait for the time to begin."""
        if self._rate == 0:
            return math.inf
        position = self.progress.position
        if position is None:
            if (wait_s := self._wait_s()) > 0:
                return now + min(wait_s, LOOK_AGAIN_S)
            position = self._begin()
        self._requested = False
        file = next(iter(self._log.files_from(position)), None)
        if file is None or position >= self._log.max_offset:
            self._end()
            return now
        return now + self._look(file, max(position, file.base_offset)) / self._rate

    def _wait_s(self) -> float:
        if self._requested or not self.progress.began_at_ms:
            return 0
        due_ms = self.progress.began_at_ms + self._interval_ms
        return (due_ms - self._clock.now_ms()) / 1000

    def _begin(self) -> int:
        start, now_ms = self._log.min_offset, self._clock.now_ms()
        self._change(position=start, began_at_ms=now_ms, checked_bytes=0)
        return start

    def _end(self) -> None:
        known = self._still_there(self.progress.began_at_ms)
        self._change(
            position=None,
            last_pass_ended_at_ms=self._clock.now_ms(),
            findings=known,
            finding_count=len(known),
        )
        self._save()

    def _still_there(self, since_ms: int) -> tuple[Finding, ...]:
        """Findings that this pass has met; others were mended, or have expired."""
        return tuple(each for each in self.progress.findings if each.found_at_ms >= since_ms)

    def _look(self, file: MappedFile, position: int) -> int:
        """Compare blocks from a position on; how many bytes that were."""
        start, used = position - file.base_offset, file.wrote_position
        stop = min(start + min(CHUNK_MAX, max(self._rate, BLOCK_SIZE)), used)
        entries = self._blocks.entries(file.base_offset)
        checked = 0
        for number in range(start // BLOCK_SIZE, -(-stop // BLOCK_SIZE)):
            if entries is None:
                break
            length = check_block(file.view, entries, file.base_offset, number, 0)
            if length < 0 and not file.is_removed:
                now_ms = self._clock.now_ms()
                self._note(explain(file.view, used, entries, file.base_offset, number, now_ms))
            checked += abs(length)
        following = file.end_offset if stop == used else file.base_offset + stop
        checked_bytes = self.progress.checked_bytes + checked
        self._change(position=following, checked_bytes=checked_bytes)
        self._unsaved += checked
        if self._unsaved >= SAVE_EVERY:
            self._save()
        return checked

    def _note(self, found: Finding) -> None:
        known = [each for each in self.progress.findings if each.offset != found.offset]
        is_new = len(known) == len(self.progress.findings)
        findings = (*known, found)[:FINDINGS_MAX]
        count = self.progress.finding_count + is_new
        self._change(findings=findings, finding_count=count)
        if is_new:
            log.error("the disk changed the log: %s", found.model_dump_json(by_alias=True))
            self._on_damage()
            self._save()

    def _change(self, **fields: object) -> None:
        self.progress = self.progress.model_copy(update=fields)

    def _save(self) -> None:
        self._unsaved = 0
        try:
            content = self.progress.model_dump_json(by_alias=True)
            replace_file(self._files, self._path, sealed_json.seal(content))
        except OSError as error:
            log.warning("how far the scrub is cannot be noted, tried again: %s", error)


def _load(files: FileSystem, path: Path) -> ScrubProgress:
    """What the last run noted; a file that cannot be read counts as none."""
    if files.stat(path) is None:
        return ScrubProgress()
    try:
        return ScrubProgress.model_validate_json(sealed_json.unseal(files.read(path)))
    except (ValidationError, ValueError, OSError) as error:
        log.warning("%s cannot be used, the scrub begins anew: %s", path, error)
        return ScrubProgress()
