"""A store as the transaction engine sees it."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqstore.storage.errors import FilePending, PutRefused
from mqstore.storage.layout import HALF_TOPIC, OP_TOPIC
from mqstore.storage.transactions import NewRecord
from mqstore.storage.transactions.log import TransactionLog
from mqstore.storage.transactions.records import Key, Page
from tests.unit.storage.stores import open_store

BORN_MS = 1_700_000_000_000


def record(key: str, topic: str = "T", queue_id: int = 0, **members: int) -> NewRecord:
    table = {"UNIQ_KEY": key, "KEYS": f"order-{key}"}
    return NewRecord(topic, queue_id, key.encode(), table, "10.0.0.1:99", BORN_MS, **members)


def test_a_record_reads_back_as_it_was_appended(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        log = TransactionLog(store)
        new = [record("a", flag=7), record("b", "U", 2, sys_flag=8, prepared_transaction_offset=5)]
        placed = log.append(new, makes_files=True)
        assert placed[0].end == placed[1].physical_offset, "contiguous"
        assert (placed[1].end, log.end_offset) == (store.log.max_offset, store.log.max_offset)
        for each, place in zip(new, placed, strict=True):
            found = log.read_one(each.topic, each.queue_id, 0)
            assert found is not None
            assert found.record == each
            assert (found.queue_offset, found.physical_offset) == (0, place.physical_offset)
            assert found.store_timestamp_ms == place.store_timestamp_ms


def test_an_append_is_all_or_none(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        log = TransactionLog(store)
        with pytest.raises(PutRefused):
            log.append([record("a"), record("b", "n" * 300)], makes_files=True)
        assert log.end_offset == 0


def test_an_append_makes_files_only_where_it_may(tmp_path: Path) -> None:
    with open_store(tmp_path, waits_for_files=False) as store:
        log = TransactionLog(store)
        with pytest.raises(FilePending):
            log.append([record("a"), record("b", "U")], makes_files=False)
        assert log.end_offset == 0
        assert len(log.append([record("a"), record("b", "U")], makes_files=True)) == 2
        assert len(log.append([record("c")], makes_files=False)) == 1


def test_pages_end_with_the_queue(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        log = TransactionLog(store)
        assert log.read("T", 0, 0, 10) == Page([], 0, 0, 0)
        log.append([record(key) for key in "abc"], makes_files=True)
        page = log.read("T", 0, 1, 10)
        assert [each.record.body for each in page.records] == [b"b", b"c"]
        assert (page.next_offset, page.min_offset, page.max_offset) == (3, 0, 3)
        assert log.read("T", 7, 0, 10) == Page([], 0, 0, 0)
        assert log.read_one("T", 0, 3) is None


def test_records_are_found_by_their_keys_and_types(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        log = TransactionLog(store)
        log.append([record("a"), record("b", sys_flag=8), record("b", "U")], makes_files=True)
        for key in ("a", "order-a"):
            found = log.by_key("T", key)
            assert [each.record.body for each in found.records] == [b"a"]
            assert found.complete
        assert log.by_key("missing", "a").records == []
        wanted = [Key("T", "a"), Key("T", "b"), Key("U", "b"), Key("T", "c"), Key("T", "order-a")]
        assert log.kinds(wanted) == {
            Key("T", "a"): {0},
            Key("T", "b"): {8},
            Key("U", "b"): {0},
        }


def test_unique_keys_that_were_remembered_may_have_records(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        log = TransactionLog(store)
        placed = log.append([record("a"), record("b")], makes_files=True)
        assert not log.may_have("T", ["a", "b", "c"])
        log.remember("T", ["a", "b"], placed)
        assert log.may_have("T", ["a"])
        assert log.may_have("T", ["c", "b"])
        assert not log.may_have("T", ["c"])
        assert not log.may_have("U", ["a"])


def test_offsets_are_saved_with_those_of_the_groups(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        log = TransactionLog(store)
        assert log.offsets() == {}
        log.append([record("a", HALF_TOPIC), record("b", OP_TOPIC)], makes_files=True)
        log.save_offsets({(HALF_TOPIC, 0): 1, (OP_TOPIC, 0): 1})
        log.save_offsets({(HALF_TOPIC, 0): 0})
    with open_store(tmp_path) as store:
        assert TransactionLog(store).offsets() == {(HALF_TOPIC, 0): 0, (OP_TOPIC, 0): 1}


def test_a_sync_brings_all_that_was_appended_to_the_disk(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        log = TransactionLog(store)
        log.append([record("a")], makes_files=True)
        log.sync()
        assert log.flushed_offset == log.end_offset > 0
        assert log.host == "127.0.0.1:10911"
        assert log.reserved_ms == store.config.file_reserved_time * 3_600_000
