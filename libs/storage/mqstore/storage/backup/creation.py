"""Creates a backup of a store, beside its writer or at rest.

The store is only read, below its durable watermark. A part of a segment that an earlier backup has
is not copied again if the store's block checksums are still those that were noted with it; where
there are none, the bytes are read and compared. The manifest is written last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from crc32c import crc32c

from mqstore.storage.backup import small_files
from mqstore.storage.backup.errors import BackupError
from mqstore.storage.backup.manifest import (
    LOG,
    MANIFEST_SIZE_MAX,
    SUFFIX,
    TABLES,
    TABLES_SIZE_MAX,
    BackedUpSegment,
    Backup,
    Part,
    StoredObject,
    digest_of_blocks,
    manifest_name,
    seal,
)
from mqstore.storage.backup.objects import CHUNK
from mqstore.storage.backup.record_ends import RecordEnd, first_time, last_end
from mqstore.storage.backup.repository import Repository
from mqstore.storage.errors import SegmentExpired, StoreNotOpen
from mqstore.storage.layout import BLOCK_SIZE
from mqstore.storage.lookup.segment_bytes import SegmentPart
from mqstore.storage.loss_check import left_by_broker
from mqstore.storage.metadata import log_owner
from mqstore.storage.paths import segment_name
from mqstore.storage.progress import Progress, no_progress
from mqstore.storage.seams import Seams
from mqstore.storage.store_reader import StoreReader

PART_SIZE_MAX: Final = 128 << 20
"""Bytes of one object: whole blocks."""
PARTS_MAX: Final = 64
"""Parts of a segment, which grew from backup to backup, before it is copied anew."""
SYNC_WAIT_S: Final = 30.0
"""Longest wait until what was stored before the backup is on the disk of the store."""
_LOOK_S: Final = 0.05
_TRIES: Final = 10
"""Beginnings anew when a recovery or a repair changes the log meanwhile."""


@dataclass(frozen=True, slots=True)
class Created:
    """The result of a backup that was created, or of a dry run."""

    backup: Backup
    new_parts: int
    reused_bytes: int
    unsynced_bytes: int
    """Bytes of the log that were stored before, by a writer that has ended, were not known to be on
    its disk, and are not included."""


class Creation:
    """Creates one backup. Used once, by one thread."""

    def __init__(
        self,
        root: Path,
        repository: Repository,
        seams: Seams,
        *,
        bytes_per_s: int | None = None,
        request_sync: Callable[[], None] = lambda: None,
        progress: Progress = no_progress,
    ) -> None:
        """``bytes_per_s`` limits the reads of the log. ``request_sync`` makes the writer sync its
        log soon; it raises nothing, and is called if the writer has not synced it."""
        self._root = root
        self._repository = repository
        self._seams = seams
        self._bytes_per_s = bytes_per_s
        self._request_sync = request_sync
        self._progress = progress
        self._renew: Callable[[], None] = lambda: None
        self._require_lock: Callable[[], None] = lambda: None
        self._sizes: dict[str, int] = {}
        self._chains: dict[int, tuple[Part, ...]] = {}
        """Known parts of segments, by offset: of the newest backup, and of this run."""
        self._id = ""
        self._dry = False
        self._first_ms: dict[int, int | None] = {}
        self._damaged = self._done = self._total = 0
        self._new: set[str] = set()
        """Names of the objects that this run has made."""
        self._began, self._read = 0.0, 0

    def run(self, *, dry_run: bool = False) -> Created:
        """Create the backup; with ``dry_run`` write nothing and say what would be copied.

        Raises BackupError, RepositoryInUse, StorageError, OSError.
        """
        self._dry = dry_run
        with StoreReader.open(self._root, self._seams) as reader:
            self._require_ours(reader)
            if dry_run:
                return self._create(reader)
            with self._repository.exclusive("backup create") as lease:
                self._renew, self._require_lock = lease.renew, lease.require
                self._repository.clear_remains()
                return self._create(reader)

    def _require_ours(self, reader: StoreReader) -> None:
        files, content = self._seams.files, reader.format
        paths = log_owner.locate(files, reader.root, content.store_path_commit_log)
        lock = files.stat(paths.lock)
        if left_by_broker(files, paths, content, None if lock is None else lock.modified_ms):
            raise BackupError(
                f"a RocketMQ broker has had {self._root} since: start store-writer on it once, "
                "so that the end of its log is known"
            )

    def _create(self, reader: StoreReader) -> Created:
        known = self._repository.newest()
        self._require_one_store(reader, known)
        segments = () if known is None else known.segments
        self._chains = {segment.offset: segment.parts for segment in segments}
        self._first_ms = {segment.offset: segment.first_ms for segment in segments}
        self._sizes = self._repository.objects.sizes(LOG)
        now_ms = self._seams.clock.now_ms()
        self._id = _new_id(now_ms, "" if known is None else known.id)
        self._began = self._seams.clock.monotonic()
        for _ in range(_TRIES):
            try:
                return self._create_once(reader, now_ms)
            except StoreNotOpen as error:
                if error.state != "recovering" or not reader.writer_is_alive:
                    raise
                self._wait(_LOOK_S)
        raise BackupError("the store is recovered or repaired again and again; try again later")

    def _require_one_store(self, reader: StoreReader, known: Backup | None) -> None:
        content = reader.format
        if known is None or (known.store_id, known.shard) == (content.store_id, content.shard):
            return
        raise BackupError(
            f"{self._repository.objects.place} has backups of shard {known.shard} of store "
            f"{known.store_id}, and {self._root} is shard {content.shard} of store "
            f"{content.store_id}: each store needs a place of its own"
        )

    def _create_once(self, reader: StoreReader, now_ms: int) -> Created:
        files = self._seams.files
        paths = log_owner.locate(files, reader.root, reader.format.store_path_commit_log)
        self._done = 0
        ahead = small_files.read_ahead(files, paths)
        unsynced = self._await_sync(reader)
        segments, end = self._copy_log(reader)
        begin = segments[0].offset if segments else end.position
        behind = small_files.read_behind(files, paths)
        starts = small_files.queue_starts(reader, begin)
        tables = seal(small_files.encode({**ahead, **behind}, starts))
        if len(tables) > TABLES_SIZE_MAX:
            raise BackupError(
                f"the small files of {self._root} take {len(tables)} bytes in a backup, which holds"
                f" {TABLES_SIZE_MAX} of them: delete topics and groups that are not used"
            )
        name = f"{TABLES}/{self._id}{SUFFIX}"
        new = [part.size for s in segments for part in s.parts if part.name in self._new]
        backup = Backup(
            id=self._id,
            created_ms=now_ms,
            ended_ms=self._seams.clock.now_ms(),
            store_id=reader.format.store_id,
            shard=reader.format.shard,
            rocketmq_format=reader.format.rocketmq_format,
            segment_size=reader.format.sizes.mapped_file_size_commit_log,
            begin=begin,
            end=end.position,
            last_ms=end.last_ms,
            copied_bytes=sum(new) + len(tables),
            damaged_blocks=self._damaged,
            segments=tuple(segments),
            tables=StoredObject(name=name, size=len(tables), crc32c=crc32c(tables)),
        )
        if not self._dry:
            self._write(name, tables)
            self._require_lock()
            self._write_manifest(backup)
        return Created(backup, len(new), backup.log_bytes - sum(new), unsynced)

    def _write_manifest(self, backup: Backup) -> None:
        raw = seal(backup)
        if len(raw) > MANIFEST_SIZE_MAX:
            raise BackupError(
                f"the manifest would have {len(raw)} bytes, and no reader takes more than "
                f"{MANIFEST_SIZE_MAX}: back up to a new place, where each segment is in one part"
            )
        self._write(manifest_name(self._id), raw)

    def _write(self, name: str, raw: bytes) -> None:
        self._renew()
        self._repository.objects.write(name, len(raw), [raw])

    def _await_sync(self, reader: StoreReader) -> int:
        """Wait until all that was stored before is below the durable watermark.

        Returns the bytes above it that a writer left which has ended.
        """
        state, clock = reader.state, self._seams.clock
        target, deadline = state.max_offset, clock.monotonic() + SYNC_WAIT_S
        if state.flushed_offset < target and reader.writer_is_alive:
            self._request_sync()
        while state.flushed_offset < target and reader.writer_is_alive:
            if clock.monotonic() >= deadline:
                raise BackupError(
                    f"the disk of the store is {target - state.flushed_offset} bytes behind; "
                    "see that it keeps up, then repeat the command"
                )
            self._wait(_LOOK_S)
            if state.is_changing:
                raise StoreNotOpen("recovering", "the store is being recovered; try again")
        return max(0, target - state.flushed_offset)

    def _wait(self, seconds: float) -> None:
        self._seams.scheduler.signal().wait_for(lambda: False, seconds)

    # the log ------------------------------------------------------------------------------

    def _copy_log(self, reader: StoreReader) -> tuple[list[BackedUpSegment], RecordEnd]:
        """Copy what the repository lacks; returns the segments, and the end as a physical offset.

        Segments that expire meanwhile are left out, with those before them.
        """
        parts = reader.segments.all()
        if not parts:
            offset = reader.state.min_offset
            return [], RecordEnd(offset, None)
        last = parts[-1]
        end = self._end_of(reader, last)
        self._total = sum(each.size for each in parts[:-1]) + end.position
        found: list[BackedUpSegment] = []
        for part in parts:
            size = end.position if part is last else part.size
            if not size:
                continue
            try:
                found.append(self._segment(reader, part, size))
            except SegmentExpired:
                found.clear()
        return found, RecordEnd(last.offset + end.position, end.last_ms)

    def _end_of(self, reader: StoreReader, part: SegmentPart) -> RecordEnd:
        place = reader.log.view_from(part.offset)
        if place is None:
            raise StoreNotOpen("recovering", "the newest segment cannot be read now")
        found = last_end(place[0], part.size, part.offset)
        _require_epoch(reader, part)
        return found

    def _segment(self, reader: StoreReader, part: SegmentPart, size: int) -> BackedUpSegment:
        segment_size = reader.format.sizes.mapped_file_size_commit_log
        kept = self._known_parts(reader, part, size, segment_size)
        position = kept[-1].stop if kept else 0
        aligned = size if size == segment_size else size - size % BLOCK_SIZE
        while position < size:
            stop = min(position + PART_SIZE_MAX, aligned if position < aligned else size)
            kept.append(self._copy(reader, part, position, stop))
            self._chains[part.offset] = tuple(kept)
            position = stop
        first_ms = self._first_ms.get(part.offset)
        if first_ms is None and (place := reader.log.view_from(part.offset)) is not None:
            first_ms = first_time(place[0], size, part.offset)
            _require_epoch(reader, part)
        return BackedUpSegment(offset=part.offset, first_ms=first_ms, parts=tuple(kept))

    def _known_parts(
        self, reader: StoreReader, part: SegmentPart, size: int, segment_size: int
    ) -> list[Part]:
        """The parts from the segment's begin that the repository has, and that still are its."""
        chain, kept, position = self._chains.get(part.offset, ()), list[Part](), 0
        if len(chain) > PARTS_MAX:
            return []
        for each in chain:
            is_whole = each.stop % BLOCK_SIZE == 0 or each.stop == segment_size
            if each.start != position or each.stop > size or not is_whole:
                break
            if self._sizes.get(each.name) != each.size:
                break
            same = self._same(reader, part, each)
            if same is None:
                break
            kept.append(same)
            position = each.stop
        return kept

    def _same(self, reader: StoreReader, part: SegmentPart, known: Part) -> Part | None:
        """The part, with the present digest of its blocks; None if its bytes have changed."""
        if known.blocks_crc32c is not None:
            digest = self._digest(reader, part, known.start, known.stop)
            if digest == known.blocks_crc32c:
                self._advance(known.size)
                return known
        crc, damaged = 0, self._damaged
        for piece in self._pieces(reader, part, known.start, known.stop):
            crc = crc32c(piece, crc)
        if crc != known.crc32c:
            self._damaged = damaged
            return None
        return self._part(reader, part, known.name, known.start, known.stop, crc, damaged)

    def _digest(self, reader: StoreReader, part: SegmentPart, start: int, stop: int) -> int | None:
        return digest_of_blocks(reader.segments.checksums(part, start, stop), stop - start)

    def _part(
        self,
        reader: StoreReader,
        part: SegmentPart,
        name: str,
        start: int,
        stop: int,
        crc: int,
        damaged: int,
    ) -> Part:
        """A part whose bytes were read since ``damaged`` blocks were counted.

        Damaged bytes get no digest: the next backup compares them with what a repair puts back.
        """
        is_whole = self._damaged == damaged
        digest = self._digest(reader, part, start, stop) if is_whole else None
        size = stop - start
        return Part(name=name, size=size, crc32c=crc, start=start, blocks_crc32c=digest)

    def _copy(self, reader: StoreReader, part: SegmentPart, start: int, stop: int) -> Part:
        name = f"{LOG}/{segment_name(part.offset)}.{start}-{stop}.{self._id}"
        size, crc, damaged = stop - start, 0, self._damaged

        def pieces() -> Iterator[bytes]:
            nonlocal crc
            for piece in self._pieces(reader, part, start, stop):
                crc = crc32c(piece, crc)
                yield piece

        if not self._dry:
            self._repository.objects.write(name, size, pieces())
            self._sizes[name] = size
        self._new.add(name)
        return self._part(reader, part, name, start, stop, crc, damaged)

    def _pieces(
        self, reader: StoreReader, part: SegmentPart, start: int, stop: int
    ) -> Iterator[bytes]:
        """The bytes of a range, in pieces, at the given rate; counts their damaged blocks."""
        for position in range(start, stop, CHUNK):
            end = min(stop, position + CHUNK)
            piece = reader.segments.read(part, position, end)
            if len(piece) != end - position:
                raise BackupError(
                    f"{part.name} has {position + len(piece)} bytes, not the {end} that its writer "
                    "names: see mqstore store verify"
                )
            if self._damaged_in(reader, part, position, piece):
                piece = reader.segments.read(part, position, end)
                self._damaged += self._damaged_in(reader, part, position, piece)
            self._advance(len(piece))
            self._read += len(piece)
            self._keep_rate()
            yield piece

    def _damaged_in(self, reader: StoreReader, part: SegmentPart, start: int, piece: bytes) -> int:
        """Number of whole blocks that do not match their checksums."""
        checksums = reader.segments.checksums(part, start, start + len(piece))
        view = memoryview(piece)
        blocks = (view[at : at + BLOCK_SIZE] for at in range(0, len(piece), BLOCK_SIZE))
        pairs = zip(checksums, blocks, strict=False)
        return sum(due is not None and crc32c(block) != due for due, block in pairs)

    def _advance(self, size: int) -> None:
        self._renew()
        self._done += size
        self._progress("copying", self._done, self._total)

    def _keep_rate(self) -> None:
        """Wait until the bytes that were read are due at the given rate."""
        if self._bytes_per_s is not None:
            due = self._began + self._read / self._bytes_per_s
            pause = due - self._seams.clock.monotonic()
            if pause > 0:
                self._wait(pause)


def _require_epoch(reader: StoreReader, part: SegmentPart) -> None:
    if reader.state.epoch != part.epoch:
        raise StoreNotOpen("recovering", "the store was recovered meanwhile; begin again")


def _new_id(now_ms: int, newest: str) -> str:
    """An id of the present time, above the newest one: a clock may have been set back."""
    try:
        while (found := _id_of(now_ms)) <= newest:
            stamp = datetime.strptime(newest, "%Y%m%dT%H%M%S.%fZ").replace(tzinfo=UTC)
            now_ms = round(stamp.timestamp() * 1000) + 1
    except (ValueError, OverflowError) as error:
        raise BackupError(
            f"the newest backup has the id {newest}, which is no time that another follows: remove "
            "its manifest"
        ) from error
    return found


def _id_of(ms: int) -> str:
    stamp = datetime.fromtimestamp(ms / 1000, UTC)
    return f"{stamp:%Y%m%dT%H%M%S}.{ms % 1000:03d}Z"
