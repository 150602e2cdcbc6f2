"""A commit log on real or simulated files, opened for one test, and what to put into it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from mqstore.storage.codec.hosts import Host
from mqstore.storage.codec.record import Blank, Message, Record, scan
from mqstore.storage.config import StoreConfig
from mqstore.storage.errors import RecordError, StoreFailed
from mqstore.storage.layout import StoreFormat
from mqstore.storage.log.commit_log import CommitLog
from mqstore.storage.mapped.mapped_file_queue import MappedFileQueue
from tests.simulation.clock import SimulatedClock
from tests.unit.storage.gated_files import Gate, Marks, gated_seams

SEGMENT = 4096
V4_HOST = Host.parse("127.0.0.1", 10911)
V6_HOST = Host.parse("::1", 10911)
V4, V5 = StoreFormat.V4_9, StoreFormat.V5_X
CONFIG = StoreConfig(mapped_file_size_commit_log=SEGMENT, max_message_size=65536)
FIXED = 91 + len("topic")
PREPARED, COMMIT, ROLLBACK = 0x4, 0x8, 0xC


@dataclass
class Opened:
    log: CommitLog
    files: MappedFileQueue
    marks: Marks
    gate: Gate
    clock: SimulatedClock
    failures: list[StoreFailed]

    def scanned(self) -> list[Record | Blank | RecordError]:
        return [
            found
            for file in self.files.files
            for found in scan(file.view, 0, file.wrote_position, file.base_offset)
        ]

    def records(self) -> list[Record]:
        return [found for found in self.scanned() if isinstance(found, Record)]

    def bytes(self) -> list[bytes]:
        return [bytes(file.view) for file in self.files.files]


def open_log(
    root: Path,
    store_format: StoreFormat = V4,
    config: StoreConfig = CONFIG,
    **options: object,
) -> Opened:
    """On real files with a gate before each sync, under a clock that the test moves."""
    seams, gate = gated_seams()
    clock = SimulatedClock()
    seams = replace(seams, clock=clock)
    size = config.mapped_file_size_commit_log
    files = MappedFileQueue(root / "commitlog", size, seams, staging=root / "staging")
    marks, failures = Marks(), list[StoreFailed]()
    log = CommitLog(
        files,
        config,
        store_format,
        seams,
        marks,
        on_failure=failures.append,
        **options,  # type: ignore[arg-type]  # what one test adds
    )
    return Opened(log, files, marks, gate, clock, failures)


def message(body: bytes | None = b"body", **changes: object) -> Message:
    base = Message("topic", 0, body, b"", V4_HOST, V4_HOST, 1_700_000_000_000)
    return base.replace(**changes)


def of_size(size: int) -> Message:
    """A message whose record has exactly ``size`` bytes."""
    return message(b"b" * (size - FIXED))
