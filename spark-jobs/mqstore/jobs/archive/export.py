"""Export of one segment by a task: writes its messages to Parquet files and reads them back."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import IO, Any, Final

import pyarrow as pa
from pyarrow import compute, parquet

from mqstore.jobs.archive.digest import digest
from mqstore.jobs.archive.names import directory_of
from mqstore.jobs.arrow import TYPES, message_batch
from mqstore.jobs.columns import MESSAGES, SEGMENT
from mqstore.jobs.errors import ArchiveDamaged
from mqstore.jobs.log.scan import CorruptStretch, RangeScan
from mqstore.jobs.log.source import Log, LogRange
from mqstore.jobs.output import Output
from mqstore.storage.formats import RecordColumns

DIRECTORY: Final = "messages"
GROUP_SIZE: Final = 8 << 20
"""Bytes of a row group, about."""
WAITING_MAX: Final = 128 << 20
"""Bytes that wait for their row group to be full, of all files of a segment together."""
_SCHEMA: Final = pa.schema({name: TYPES[of] for name, of in MESSAGES.items()})
NO_DAY: Final = "unknown"
"""For a time that no date can say."""


@dataclass(frozen=True, slots=True)
class ArchivedFile:
    """One file, by its own name and the one that it has until it is published."""

    name: str
    staged: str
    topic: str
    rows: int
    bytes: int
    """Bytes of the records in the log."""
    crc32c: int
    """Over the digests of its row groups, which were the same when it was read back."""


@dataclass(frozen=True, slots=True)
class ArchivedSegment:
    """A segment whose messages are in staged files."""

    part: LogRange
    files: tuple[ArchivedFile, ...]
    corrupt: tuple[CorruptStretch, ...]
    """Stretches without a whole message, which no file holds."""


@dataclass(slots=True)
class _File:
    """A file being written."""

    name: str
    topic: str
    staged: str
    raw: IO[bytes]
    writer: Any
    waiting: list[pa.Table] = field(default_factory=list)
    waiting_bytes: int = 0
    digests: list[int] = field(default_factory=list)
    rows: int = 0
    bytes: int = 0

    def write(self) -> None:
        """Write the waiting tables as one row group."""
        if not self.waiting:
            return
        group = pa.concat_tables(self.waiting).combine_chunks()
        self.writer.write_table(group, row_group_size=max(1, len(group)))
        self.digests.append(digest(group))
        self.rows += len(group)
        self.bytes += compute.sum(group["size"]).as_py()
        self.waiting, self.waiting_bytes = [], 0


def export(log: Log, part: LogRange, out: Output, shard: str) -> ArchivedSegment:
    """All messages of a range, staged and read back; who calls publishes or drops the files.

    Raises JobError; ArchiveDamaged where something else is read back than was written. Whatever
    it raises, nothing that it staged is left, unless the place does not let it be dropped.
    """
    name = f"{shard}_{part.start:020d}-{part.stop:020d}.parquet"
    files = _Files(out, name)
    corrupt: list[CorruptStretch] = []
    rows = RecordColumns([column for column in MESSAGES if column != SEGMENT])
    try:
        with files.stack, log.opened() as reader:
            for stretches in RangeScan(reader, part, rows, high=part.stop).steps():
                files.add(pa.Table.from_batches([message_batch(MESSAGES, rows, part.segment.name)]))
                corrupt += stretches
            files.finish()
        return ArchivedSegment(part, tuple(files.verified()), tuple(corrupt))
    except BaseException:
        out.drop(files.staged())
        raise


class _Files:
    """The files of one segment, by topic and day."""

    def __init__(self, out: Output, name: str) -> None:
        self.stack = ExitStack()
        """Closes what is being written."""
        self._out = out
        self._name = name
        self._files: dict[tuple[str, str], _File] = {}

    def staged(self) -> list[str]:
        return [file.staged for file in self._files.values()]

    def add(self, table: pa.Table) -> None:
        for (topic, day), rows in _parted(table):
            file = self._files.get((topic, day)) or self._begin(topic, day)
            file.waiting.append(rows)
            file.waiting_bytes += rows.nbytes
            if file.waiting_bytes >= GROUP_SIZE:
                file.write()
        while sum(file.waiting_bytes for file in self._files.values()) > WAITING_MAX:
            max(self._files.values(), key=lambda file: file.waiting_bytes).write()

    def finish(self) -> None:
        for file in self._files.values():
            file.write()

    def verified(self) -> Iterator[ArchivedFile]:
        """Reads back what was written and closed. Raises ArchiveDamaged, OutputRefused."""
        for file in self._files.values():
            with self._out.open(file.staged) as raw:
                found = parquet.ParquetFile(raw)
                groups = range(found.num_row_groups)
                read = [digest(found.read_row_group(group)) for group in groups]
            if (found.metadata.num_rows, read) != (file.rows, file.digests):
                raise ArchiveDamaged(
                    f"{file.name}: not what was written is read back from {self._out.url}; "
                    "nothing of its segment is archived, run the job again"
                )
            checksum = digest(pa.table({"group": pa.array(read, pa.int64())}))
            yield ArchivedFile(file.name, file.staged, file.topic, file.rows, file.bytes, checksum)

    def _begin(self, topic: str, day: str) -> _File:
        # A topic may look like a number, and Spark would read it as one: the column says it too.
        name = f"{DIRECTORY}/{directory_of(topic)}/day={day}/{self._name}"
        staged, raw = self._out.create(name)
        self.stack.enter_context(raw)
        writer = self.stack.enter_context(parquet.ParquetWriter(raw, _SCHEMA, compression="zstd"))
        file = self._files[topic, day] = _File(name, topic, staged, raw, writer)
        return file


def _parted(table: pa.Table) -> Iterator[tuple[tuple[str, str], pa.Table]]:
    """The rows of each topic and day, in their order."""
    days = compute.fill_null(compute.strftime(table["store_time"], format="%Y-%m-%d"), NO_DAY)
    keyed = pa.table({"topic": table["topic"], "day": days})
    places: dict[tuple[str, str], list[int]] = defaultdict(list)
    for place, key in enumerate(zip(*keyed.to_pydict().values(), strict=True)):
        places[key].append(place)
    for key, rows in places.items():
        yield key, table if len(places) == 1 else table.take(pa.array(rows, pa.int64()))
