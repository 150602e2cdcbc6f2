"""Look-ups in one call over a real store read only what is in memory."""

from __future__ import annotations

import gc
import json
from pathlib import Path

import pytest

from mqstore.storage._kernel import MessageLane, TimeLane
from mqstore.storage.message_store import Durability
from mqstore.storage.paths import StorePaths
from mqstore.storage.store_reader import StoreReader
from mqstore.storage.system.threads import production_seams
from tests.page_cache import evict, is_in_memory
from tests.unit.storage.log_windows import plain_form
from tests.unit.storage.puts import put_message
from tests.unit.storage.stores import message, open_store

COUNT = 50
FORM = plain_form()


def _filled(root: Path) -> None:
    with open_store(root) as store:
        for number in range(COUNT):
            put_message(store, message(store, number), Durability.SYNC)


def _by_id(reader: StoreReader, message_id: str) -> bytes | None:
    lane = MessageLane(FORM, max_bytes=1 << 18)
    return lane.find(reader.window, reader.queues, message_id.encode(), b"", b"", b"\r\n")


def _by_time(reader: StoreReader, at_ms: int) -> bytes | None:
    queue = reader.queues.known("T", 0)
    lane = TimeLane(b'{"timestamp":', shard=0, max_bytes=1 << 18)
    return None if queue is None else lane.find(queue, at_ms, b"", b"", b"\r\n")


def test_nothing_is_read_while_a_page_is_on_disk(tmp_path: Path) -> None:
    _filled(tmp_path)
    with StoreReader.open(tmp_path, production_seams()) as reader:
        found = reader.lookups.records("T", 0, 20, 1).records[0]
    gc.collect()  # no reader maps it any more
    message_id, at_ms = found.offset_message_id, found.store_timestamp_ms
    with StoreReader.open(tmp_path, production_seams()) as reader:
        segment = min(StorePaths(tmp_path).commit_log.iterdir())
        reader.lookups.queue_range("T", 0)
        reader.queues.aim("T", 0, 0)
        evict(segment)
        if is_in_memory(segment):
            pytest.skip("the file system of the tests keeps everything in memory")
        assert (_by_id(reader, message_id), _by_time(reader, at_ms)) == (None, None)
        assert not is_in_memory(segment)
        reader.lookups.by_message_id(message_id)
        offset = reader.lookups.offset_by_time("T", 0, at_ms)
        shown, searched = _by_id(reader, message_id), _by_time(reader, at_ms)
        assert shown is not None
        assert searched is not None
        assert json.loads(shown.partition(b"\r\n\r\n")[2])["queueOffset"] == 20
        assert json.loads(searched.partition(b"\r\n\r\n")[2])["offset"] == offset


def test_a_queue_that_was_not_opened_is_left_to_the_general_way(tmp_path: Path) -> None:
    _filled(tmp_path)
    with StoreReader.open(tmp_path, production_seams()) as reader:
        message_id = reader.lookups.by_physical_offset(0).offset_message_id
        assert _by_id(reader, message_id) is None
        reader.queues.get("T", 0)
        assert _by_id(reader, message_id) is not None
