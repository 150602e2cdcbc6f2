"""Stores of ours for measurements: new ones, and a filled one that stands ready on both sides."""

from __future__ import annotations

import shutil
import subprocess
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from mqstore.storage.config import FlushDiskType, StoreConfig
from mqstore.storage.message_store import MessageStore
from mqstore.storage.system.threads import production_seams
from tests.bench.rocketmq import SEGMENT_DEFAULT
from tests.bench.workload import (
    BODY_SIZE,
    QUEUES,
    TOPIC,
    encoded_properties,
    make_body,
    make_message,
)
from tests.unit.storage.puts import put_batch

FILL_BATCH: Final = 64


def open_store(
    root: Path,
    *,
    segment: int = SEGMENT_DEFAULT,
    flush: FlushDiskType = FlushDiskType.ASYNC,
    **settings: Any,
) -> MessageStore:
    """RocketMQ's defaults, but for the segment size, the kind of flush, and ``settings``."""
    config = StoreConfig(mapped_file_size_commit_log=segment, flush_disk_type=flush, **settings)
    return MessageStore.open(root, config, production_seams())


@contextmanager
def fresh_directory(directory: Path) -> Iterator[Path]:
    with TemporaryDirectory(dir=directory, prefix="store-") as root:
        yield Path(root)


@dataclass(frozen=True)
class Filled:
    """The same cleanly closed store twice, so that neither side opens what the other left."""

    ours: Path
    peers: Path
    segment: int
    records: int
    offsets: Sequence[int]
    """Physical offsets of the records, by number (``workload.unique_key``)."""
    log_bytes: int


@contextmanager
def filled_store(
    directory: Path, segment: int, size: int, body_size: int = BODY_SIZE
) -> Iterator[Filled]:
    """A store whose log holds at least ``size`` bytes of messages, by default of 1 KiB."""
    with fresh_directory(directory) as room:
        ours, peers = room / "ours", room / "peers"
        offsets, log_bytes = _filled(ours, segment, size, body_size)
        # Index and segments are mostly holes, or zeros that were reserved.
        subprocess.run(["cp", "-a", "--sparse=always", str(ours), str(peers)], check=True)
        shutil.rmtree(peers / "mqstore")
        yield Filled(ours, peers, segment, len(offsets), offsets, log_bytes)


def _filled(root: Path, segment: int, size: int, body_size: int) -> tuple[Sequence[int], int]:
    """Make a store; returns the offsets of its records, and the end of its log.

    The files are mapped as long as the store's object is there, so it ends here.
    """
    with open_store(root, segment=segment) as store:
        store.create_topic(TOPIC, queues=QUEUES)
        return _fill(store, size, body_size), store.log.max_offset


def _fill(store: MessageStore, size: int, body_size: int) -> Sequence[int]:
    body = make_body(body_size)
    offsets = array("q")  # of tens of millions of records
    while store.log.max_offset < size:
        queue_id = len(offsets) // FILL_BATCH % QUEUES
        encoded = encoded_properties(len(offsets), FILL_BATCH, with_rare=True)
        batch = [make_message(queue_id, body, each) for each in encoded]
        offsets.extend(placement.physical_offset for placement in put_batch(store, batch))
    return offsets
