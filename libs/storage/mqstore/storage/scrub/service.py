"""The service that compares the log, block by block, with its checksums, and keeps its findings.

It reads at scrubBytesPerSecond, off the hot path, and begins again scrubIntervalHours after it
began; its progress is kept over restarts in ``store/mqstore/scrub.json``. A finding advances the
epoch, so that readers check again the blocks that they had verified.

Look-ups report damage that they meet. The scrub checks the block itself, at its next step, and
treats damage there like that of a pass.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from threading import Lock, RLock
from typing import Final

from mqstore.storage._kernel import check_block
from mqstore.storage.config import DamageRepair, StoreConfig
from mqstore.storage.errors import RepairRefused
from mqstore.storage.layout import BLOCK_SIZE
from mqstore.storage.log_lines import bounded_log
from mqstore.storage.mapped.mapped_file import MappedFile
from mqstore.storage.mapped.mapped_file_queue import MappedFileQueue
from mqstore.storage.metadata import sealed_json
from mqstore.storage.metadata.block_files import BlockFiles
from mqstore.storage.metadata.changed_bytes import ChangedBytes, explain
from mqstore.storage.metadata.sealed_json import Value
from mqstore.storage.recovery.report import RepairReport, RestoreBytes
from mqstore.storage.scrub.repairs import AUTOMATIC_BYTES_MAX, LogRepairs
from mqstore.storage.seams import FileSystem, Seams

FINDINGS_MAX: Final = 100
"""Maximum number of kept findings; the count continues."""
CHUNK_MAX: Final = 4 << 20
"""Maximum bytes of one step."""
REPORTS_MAX: Final = 1_024
"""Maximum number of waiting reported blocks; further ones are dropped: a later read reports them,
or a pass finds them."""
SAVE_EVERY: Final = 256 << 20
"""Bytes after which the progress is saved."""
RECHECK_S: Final = 3_600.0
"""Longest wait for the next pass, as the clock may be stepped."""
MS_PER_HOUR: Final = 3_600_000
_UNPLACED: Final = -1
"""In place of a segment's first offset: of findings that a run before counted and did not keep."""

log = bounded_log(__name__)


class RepairedPlace(Value):
    """A place of the log that a repair changed; offsets are physical, in bytes."""

    offset: int
    length: int
    kind: str
    """restore-bytes: the original bytes were restored; fetch-bytes: a replica had them;
    place-tombstone: the record there is lost; close-segment: a segment's end was lost."""
    topic: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None
    replica: str | None = None
    """The replica that had the bytes."""
    quarantined: str
    """The entry of ``store/mqstore/quarantine`` with the damaged bytes."""
    repaired_at_ms: int


class ScrubProgress(Value):
    """The progress of the scrub.

    Offsets are physical, sizes in bytes, times in milliseconds since the epoch.
    """

    position: int | None = None
    """Offset up to which this pass has read; null while none runs."""
    began_at_ms: int = 0
    """Start of this pass, or of the last one."""
    checked_bytes: int = 0
    """Bytes covered by checksums that this pass, or the last one, has compared."""
    last_pass_ended_at_ms: int | None = None
    finding_count: int = 0
    """Findings of this pass and, for the part that it has not reached, of the one before."""
    findings: tuple[ChangedBytes, ...] = ()
    """The first 100 findings."""
    repair_count: int = 0
    """Number of places in the log that were repaired since the store was made."""
    tombstone_count: int = 0
    """Number of these places where a tombstone replaced a message."""
    repairs: tuple[RepairedPlace, ...] = ()
    """The last 100 repairs."""


class Scrub:
    """A ``BackgroundService``; any thread may use ``progress``, ``request``, ``report`` and
    ``waiting``."""

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
        may_repair: bool,
        on_damage: Callable[[], object],
        on_report: Callable[[], object],
    ) -> None:
        """Without ``may_repair`` damage is reported only, as with damageRepair=manual: in a store
        that follows a leader. ``on_damage`` is called after a new finding."""
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
        self._is_automatic = may_repair and config.damage_repair is DamageRepair.AUTOMATIC
        self._segment_size = config.mapped_file_size_commit_log
        self._damaged = {self._base_of(each.offset) for each in self.progress.findings}
        """First offsets of the segments to repair."""
        unlisted = self.progress.finding_count - len(self.progress.findings)
        self._unlisted = Counter({_UNPLACED: unlisted} if unlisted > 0 else {})
        """Findings that are counted and not kept, by the first offset of their segment."""
        self._began_here = False
        """Whether this pass has read, in this process, the log from its start."""
        self._left: set[int] = set()
        """Segments that this pass does not read again for a repair, which refused theirs."""
        self._changing = RLock()
        self._requested = False
        self._unsaved = 0
        self._has_new = False
        """Whether there are findings that were not reported yet."""
        self._repair_due = 0.0
        """Monotonic time from which damage is repaired; later after a repair was rejected."""
        self._resumes_at = 0.0
        """Monotonic time of the pass's next step."""
        self._on_report = on_report
        self.report_count = 0
        """Number of accepted reports of blocks."""
        self._reports: set[int] = set()
        """First offsets of the reported blocks that wait."""
        self._reporting = Lock()

    def request(self) -> ScrubProgress:
        """Begin a pass at the next step, unless one runs."""
        self._requested = True
        return self.progress

    def report(self, offset: int) -> None:
        """Report one offset as ``report_all``: a look-up met damage there, or could not read a
        record."""
        self.report_all((offset,))

    def report_all(self, offsets: Iterable[int]) -> None:
        """Check the blocks that hold these physical offsets at the next step, each once.

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
        """Number of reported blocks that wait to be checked; 1,024 at most."""
        return len(self._reports)

    def step(self, now: float) -> float:
        """Compare some blocks, or wait until the next pass is due."""
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
        """Compare the next blocks of the pass."""
        if self._rate == 0:
            return math.inf
        position = self.progress.position
        if position is None:
            if (wait_s := self._wait_s()) > 0:
                return now + min(wait_s, RECHECK_S)
            position = self._begin()
        self._requested = False
        file = next(iter(self._log.files_from(position)), None)
        if file is None or position >= self._log.max_offset:
            self._end()
            return now
        looked_at = self._compare(file, max(position, file.base_offset))
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
                self._note_repairs(report, bases)
            return report

    def repair_known(self) -> None:
        """Check the reported blocks, and repair known damage where that is automatic.

        Called after the last step.
        """
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
            self._repair_due = now + RECHECK_S
            return
        if not report.done and report.plan.actions:
            self._left |= damaged
            log.error(
                "damage of the log is not repaired: tombstones would take %d bytes, and %d are the "
                "most that are placed without a command; see `mqstore store repair`",
                report.plan.tombstone_bytes,
                AUTOMATIC_BYTES_MAX,
            )

    def _note_repairs(self, report: RepairReport, bases: Collection[int] | None) -> None:
        """Note what was repaired in the segments with these first offsets, or in all."""
        now_ms = self._clock.now_ms()
        for base in [*self._unlisted] if bases is None else bases:
            self._unlisted.pop(base, None)
        done = [
            RepairedPlace(
                offset=action.offset,
                length=action.length,
                kind=action.kind,
                quarantined=name,
                repaired_at_ms=now_ms,
                **action.model_dump(include={"topic", "queue_id", "queue_offset", "replica"}),
            )
            for action, name in zip(report.plan.actions, report.quarantined, strict=True)
        ]
        left = tuple(each for each in self.progress.findings if self._is_still(each))
        lost = sum(not isinstance(action, RestoreBytes) for action in report.plan.actions)
        self._change(
            findings=left,
            finding_count=len(left) + self._unlisted.total(),
            repair_count=self.progress.repair_count + len(done),
            tombstone_count=self.progress.tombstone_count + lost,
            repairs=(*self.progress.repairs, *done)[-FINDINGS_MAX:],
        )
        self._save()

    def _is_still(self, found: ChangedBytes) -> bool:
        """Whether the block of a finding still does not match."""
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
        self._left.clear()
        self._began_here = True
        self._change(position=start, began_at_ms=now_ms, checked_bytes=0)
        return start

    def _end(self) -> None:
        known = self._persisting_findings(self.progress.began_at_ms)
        for base in [*self._unlisted]:
            is_gone = base != _UNPLACED and base < self._log.min_offset
            if is_gone or (base == _UNPLACED and self._began_here):
                del self._unlisted[base]
        self._change(
            position=None,
            last_pass_ended_at_ms=self._clock.now_ms(),
            findings=known,
            finding_count=len(known) + self._unlisted.total(),
        )
        self._save()

    def _persisting_findings(self, since_ms: int) -> tuple[ChangedBytes, ...]:
        """Findings that this pass has met; others were repaired, or have expired."""
        return tuple(each for each in self.progress.findings if each.found_at_ms >= since_ms)

    def _check_reported(self, blocks_max: int) -> int:
        """Check reported blocks; returns the number of bytes, at least one where any waited.

        While 100 findings are listed, reports are dropped: an unlisted finding would count each
        time it is reported. A pass counts it once.
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
        self._report_new()
        return max(checked, len(taken))

    def _compare(self, file: MappedFile, position: int) -> int:
        """Compare blocks from a position on; returns the number of bytes."""
        start, used = position - file.base_offset, file.wrote_position
        stop = min(start + min(CHUNK_MAX, max(self._rate, BLOCK_SIZE)), used)
        entries = self._blocks.entries(file.base_offset)
        if start == 0 and (counted := self._unlisted.pop(file.base_offset, 0)):
            self._change(finding_count=self.progress.finding_count - counted)
        checked = 0
        for number in range(start // BLOCK_SIZE, -(-stop // BLOCK_SIZE)):
            if entries is None:
                break
            checked += self._check(file, entries, number)
        following = file.end_offset if stop == used else file.base_offset + stop
        checked_bytes = self.progress.checked_bytes + checked
        self._change(position=following, checked_bytes=checked_bytes)
        self._report_new()
        self._unsaved += checked
        if self._unsaved >= SAVE_EVERY:
            self._save()
        return checked

    def _check(self, file: MappedFile, entries: memoryview, number: int) -> int:
        """Compare one block, and note it where it is damaged; returns the number of compared
        bytes."""
        base, used = file.base_offset, file.wrote_position
        length = check_block(file.view, entries, base, number, 0)
        if length < 0 and not file.is_removed:
            self._note(explain(file.view, used, entries, base, number, self._clock.now_ms()))
        return abs(length)

    def _note(self, found: ChangedBytes) -> None:
        known = [each for each in self.progress.findings if each.offset != found.offset]
        is_new = len(known) == len(self.progress.findings)
        findings = (*known, found)[:FINDINGS_MAX]
        count = self.progress.finding_count + is_new
        if len(known) == FINDINGS_MAX:
            self._unlisted[self._base_of(found.offset)] += 1
        self._change(findings=findings, finding_count=count)
        if is_new:
            log.error("the disk changed the log: %s", found.model_dump_json(by_alias=True))
            self._damaged |= {self._base_of(found.offset)} - self._left
            self._has_new = True

    def _report_new(self) -> None:
        """Report and save the findings of the blocks that were compared, once for all of them."""
        if self._has_new:
            self._has_new = False
            self._on_damage()
            self._save()

    def _change(self, **fields: object) -> None:
        self.progress = self.progress.model_copy(update=fields)

    def _save(self) -> None:
        self._unsaved = 0
        try:
            sealed_json.write(self._files, self._path, self.progress)
        except OSError as error:
            log.warning("how far the scrub is cannot be noted, tried again: %s", error)


def _load(files: FileSystem, path: Path) -> ScrubProgress:
    """Load the last run's progress; a file that cannot be read counts as none."""
    try:
        return sealed_json.read(files, path, ScrubProgress) or ScrubProgress()
    except (ValueError, OSError) as error:
        log.warning("%s cannot be used, the scrub begins anew: %s", path, error)
        return ScrubProgress()
