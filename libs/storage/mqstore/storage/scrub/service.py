"""Walks the log, block by block, against its checksums, and keeps what it finds.

It reads at scrubBytesPerSecond, off the hot path, and begins again scrubIntervalHours after it
began; how far it is, is kept over restarts in ``store/mqstore/scrub.json``. What it finds is told
to readers by a new epoch, so that no block that was whole before is believed any more.

Look-ups report damage that they meet. The scrub checks the block itself, at its next step, and
treats damage there as it treats damage that a pass finds.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from threading import Lock, RLock
from typing import Final

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.alias_generators import to_camel

from mqstore.storage._kernel import check_block
from mqstore.storage.config import DamageRepair, StoreConfig
from mqstore.storage.errors import RepairRefused
from mqstore.storage.layout import BLOCK_SIZE
from mqstore.storage.mapped.mapped_file import MappedFile
from mqstore.storage.mapped.mapped_file_queue import MappedFileQueue
from mqstore.storage.metadata import sealed_json
from mqstore.storage.metadata.block_files import BlockFiles
from mqstore.storage.recovery.report import PlaceTombstone, RepairReport
from mqstore.storage.scrub.finding import Finding, explain
from mqstore.storage.scrub.repairs import AUTOMATIC_BYTES_MAX, LogRepairs
from mqstore.storage.seams import FileSystem, Seams
from mqstore.storage.system.atomic_file import replace_file

FINDINGS_MAX: Final = 100
"""Findings that are kept; the count goes on."""
CHUNK_MAX: Final = 4 << 20
"""Bytes of one step."""
REPORTS_MAX: Final = 1_024
"""Reported blocks that wait; further ones are dropped: a later read reports them, or a pass finds
them."""
SAVE_EVERY: Final = 256 << 20
"""Bytes after which the progress is noted."""
LOOK_AGAIN_S: Final = 3_600.0
"""The clock may be stepped: how long a wait for the next pass is at most."""
MS_PER_HOUR: Final = 3_600_000

log = logging.getLogger(__name__)


class Repaired(BaseModel):
    """A place of the log that a repair changed; offsets are physical, in bytes."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, frozen=True)

    offset: int
    length: int
    kind: str
    """restore-bytes: it is again what was written; place-tombstone: the record there is lost;
    close-segment: a segment's end was lost."""
    topic: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None
    quarantined: str
    """The entry of ``store/mqstore/quarantine`` with the damaged bytes."""
    repaired_at_ms: int


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
    repair_count: int = 0
    """Number of places in the log that were repaired since the store was made."""
    tombstone_count: int = 0
    """Number of these places where a tombstone replaced a message."""
    repairs: tuple[Repaired, ...] = ()
    """The last 100 of them."""


class Scrub:
    """A ``BackgroundService``; ``progress``, ``request``, ``report`` and ``waiting`` are for any
    thread."""

    name = "scrub"

    def __init__(
        self,
        path: Path,
        config: StoreConfig,
        log_files: MappedFileQueue,
        blocks: BlockFiles,
        repairs: LogRepairs,
        seams: Seams,
        *,
        on_damage: Callable[[], object],
        on_report: Callable[[], object],
    ) -> None:
        """``path`` holds the progress over restarts. ``on_damage`` is called after something was
        found that was not known, ``on_report`` after a report was taken, in its thread."""
        self._files = seams.files
        self._clock = seams.clock
        self._path = path
        self.progress = _load(self._files, self._path)
        self._log = log_files
        self._blocks = blocks
        self._rate = config.scrub_bytes_per_second
        self._interval_ms = config.scrub_interval_hours * MS_PER_HOUR
        self._on_damage = on_damage
        self._repairs = repairs
        self._is_automatic = config.damage_repair is DamageRepair.AUTOMATIC
        self._segment_size = config.mapped_file_size_commit_log
        self._damaged = {self._base_of(each.offset) for each in self.progress.findings}
        """First offsets of the segments that are to be repaired."""
        self._changing = RLock()
        self._requested = False
        self._unsaved = 0
        self._repair_due = 0.0
        """Monotonic time from which damage is repaired; later after a repair was refused."""
        self._resumes_at = 0.0
        """Monotonic time of the pass's next step."""
        self._on_report = on_report
        self.report_count = 0
        """Number of accepted reports of blocks."""
        self._reports: set[int] = set()
        """First offsets of the reported blocks that wait."""
        self._reporting = Lock()

    def request(self) -> ScrubProgress:
        """Have a pass begin at the next step, unless one runs."""
        self._requested = True
        return self.progress

    def report(self, offset: int) -> None:
        """As ``report_all``, for one offset: a look-up met damage there, or was not able to read a
        record."""
        self.report_all((offset,))

    def report_all(self, offsets: Iterable[int]) -> None:
        """Have the blocks that hold these physical offsets checked at the next step, each once.

        Never waits for a step and never raises. Ignored: an offset outside of the log, a block that
        waits already, and any when 1,024 blocks wait.
        """
        least, end = self._log.min_offset, self._log.max_offset
        blocks = {self._block_of(each) for each in offsets if least <= each < end}
        with self._reporting:
            room = REPORTS_MAX - len(self._reports)
            taken = sorted(blocks - self._reports)[:room]
            self._reports.update(taken)
            self.report_count += len(taken)
        if taken:
            self._on_report()

    def _block_of(self, offset: int) -> int:
        return offset - (offset - self._base_of(offset)) % BLOCK_SIZE

    @property
    def waiting(self) -> int:
        """How many reported blocks wait to be checked; 1,024 at most."""
        return len(self._reports)

    def step(self, now: float) -> float:
        """Look at some blocks, or wait for the time to begin."""
        with self._changing:
            return self._step(now)

    def _step(self, now: float) -> float:
        reported = self._check_reported(CHUNK_MAX // BLOCK_SIZE)
        if self._is_automatic and self._damaged and now >= self._repair_due:
            self._repair_by_itself(now)
        if reported:
            return max(self._resumes_at, now + reported / self._rate) if self._rate else now
        following = self._go_on(now)
        if self._is_automatic and self._damaged:
            return min(following, max(now, self._repair_due))
        return following

    def _go_on(self, now: float) -> float:
        """The pass's next blocks."""
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
        looked_at = self._look(file, max(position, file.base_offset))
        self._resumes_at = now + looked_at / self._rate
        return self._resumes_at

    def repair(
        self,
        bases: Collection[int] | None = None,
        progress: Callable[[int, int], None] | None = None,
        *,
        bytes_max: int | None = None,
    ) -> RepairReport:
        """Run ``LogRepairs.run`` and note its repairs in ``progress``."""
        with self._changing:
            report = self._repairs.run(bases, progress, bytes_max=bytes_max)
            if report.done:
                self._note_repairs(report)
            return report

    def repair_known(self) -> None:
        """Check the blocks that were reported, and repair what was found and is not repaired yet,
        where that is automatic. Called after the last step."""
        self._check_reported(REPORTS_MAX)
        if self._is_automatic and self._damaged:
            self._repair_by_itself(math.inf)

    def _repair_by_itself(self, now: float) -> None:
        damaged, self._damaged = self._damaged, set()
        try:
            report = self.repair(damaged, bytes_max=AUTOMATIC_BYTES_MAX)
        except RepairRefused as error:
            log.error("damage of the log is not repaired, tried again: %s", error)
            self._damaged |= damaged
            self._repair_due = now + LOOK_AGAIN_S
            return
        if not report.done and report.plan.actions:
            log.error(
                "damage of the log is not repaired: tombstones would take %d bytes, and %d are the "
                "most that are placed without a command; see `mqstore store repair`",
                report.plan.tombstone_bytes,
                AUTOMATIC_BYTES_MAX,
            )

    def _note_repairs(self, report: RepairReport) -> None:
        now_ms = self._clock.now_ms()
        done = [
            Repaired(
                offset=action.offset,
                length=action.length,
                kind=action.kind,
                quarantined=name,
                repaired_at_ms=now_ms,
                **(
                    action.model_dump(include={"topic", "queue_id", "queue_offset"})
                    if isinstance(action, PlaceTombstone)
                    else {}
                ),
            )
            for action, name in zip(report.plan.actions, report.quarantined, strict=True)
        ]
        left = tuple(each for each in self.progress.findings if self._is_still(each))
        lost = sum(each.kind != "restore-bytes" for each in done)
        self._change(
            findings=left,
            finding_count=self.progress.finding_count - len(self.progress.findings) + len(left),
            repair_count=self.progress.repair_count + len(done),
            tombstone_count=self.progress.tombstone_count + lost,
            repairs=(*self.progress.repairs, *done)[-FINDINGS_MAX:],
        )
        self._save()

    def _is_still(self, found: Finding) -> bool:
        """Whether the block of a finding is still not as covered."""
        base = self._base_of(found.offset)
        file, entries = self._log.find(found.offset), self._blocks.entries(base)
        if file is None or entries is None:
            return False
        return check_block(file.view, entries, base, (found.offset - base) // BLOCK_SIZE, 0) < 0

    def _base_of(self, offset: int) -> int:
        return offset - offset % self._segment_size

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

    def _check_reported(self, blocks_max: int) -> int:
        """Check reported blocks; how many bytes that were, at least one where any waited.

        While 100 findings are listed, reports are dropped: a finding that is not listed would count
        each time that it is reported. A pass counts it once.
        """
        with self._reporting:
            taken = [self._reports.pop() for _ in range(min(blocks_max, len(self._reports)))]
        checked = 0
        for block in taken:
            file = self._log.find(block)
            if file is not None and len(self.progress.findings) < FINDINGS_MAX:
                number = (block - file.base_offset) // BLOCK_SIZE
                entries = self._blocks.entries(file.base_offset)
                checked += 0 if entries is None else self._check(file, entries, number)
        return max(checked, len(taken))

    def _look(self, file: MappedFile, position: int) -> int:
        """Compare blocks from a position on; how many bytes that were."""
        start, used = position - file.base_offset, file.wrote_position
        stop = min(start + min(CHUNK_MAX, max(self._rate, BLOCK_SIZE)), used)
        entries = self._blocks.entries(file.base_offset)
        checked = 0
        for number in range(start // BLOCK_SIZE, -(-stop // BLOCK_SIZE)):
            if entries is None:
                break
            checked += self._check(file, entries, number)
        following = file.end_offset if stop == used else file.base_offset + stop
        checked_bytes = self.progress.checked_bytes + checked
        self._change(position=following, checked_bytes=checked_bytes)
        self._unsaved += checked
        if self._unsaved >= SAVE_EVERY:
            self._save()
        return checked

    def _check(self, file: MappedFile, entries: memoryview, number: int) -> int:
        """Compare one block, and note it where it is damaged; how many bytes were compared."""
        base, used = file.base_offset, file.wrote_position
        length = check_block(file.view, entries, base, number, 0)
        if length < 0 and not file.is_removed:
            self._note(explain(file.view, used, entries, base, number, self._clock.now_ms()))
        return abs(length)

    def _note(self, found: Finding) -> None:
        known = [each for each in self.progress.findings if each.offset != found.offset]
        is_new = len(known) == len(self.progress.findings)
        findings = (*known, found)[:FINDINGS_MAX]
        count = self.progress.finding_count + is_new
        self._change(findings=findings, finding_count=count)
        if is_new:
            log.error("the disk changed the log: %s", found.model_dump_json(by_alias=True))
            self._damaged.add(self._base_of(found.offset))
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
