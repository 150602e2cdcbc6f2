"""Dispatch: every kind of record, damage, re-dispatch, and the index's own run."""

from __future__ import annotations

import math
import struct
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqstore.storage.codec.java_text import index_hash, string_hash
from mqstore.storage.layout import (
    PRE_BLANK_SIZE,
    QUEUE_ENTRY_SIZE,
    SCHEDULE_TOPIC,
    TOMBSTONE_MARK,
    StoreFormat,
)
from mqstore.storage.queues.consume_queues import split_key
from tests.long_runs import examples
from tests.unit.storage.small_store import (
    BORN_MS,
    HOST,
    HOST_V6,
    SEGMENT,
    V4,
    V5,
    SmallLog,
    SmallStore,
    small_config,
)

HOLE = (0, PRE_BLANK_SIZE, 0)
PREPARED, COMMIT, ROLLBACK = 0x4, 0x8, 0xC


def test_each_record_gets_the_entry_of_its_queue_offset(tmp_path: Path) -> None:
    log = SmallLog()
    offsets = [log.put(props={"TAGS": f"t{number}"}) for number in range(25)]
    store = SmallStore(tmp_path, log)

    store.dispatch()

    sizes = [struct.unpack(">i", log.select(at, 4) or b"")[0] for at in offsets]
    codes = [string_hash(f"t{number}") for number in range(25)]
    assert store.entries() == list(zip(offsets, sizes, codes, strict=True))
    assert store.marks.dispatched == log.max_offset
    assert sorted(path.name for path in (tmp_path / "consumequeue/topic/0").iterdir()) == [
        f"{base:020d}" for base in (0, 200, 400)
    ]


def test_prepared_and_rollback_records_stay_out_of_the_queues(tmp_path: Path) -> None:
    log = SmallLog()
    log.put(sys_flag=PREPARED)
    log.put(sys_flag=ROLLBACK)
    committed = log.put(sys_flag=COMMIT)
    store = SmallStore(tmp_path, log)

    store.dispatch()

    assert [entry[0] for entry in store.entries()] == [committed]


def test_rollback_records_are_not_indexed_and_prepared_ones_are(tmp_path: Path) -> None:
    log = SmallLog()
    prepared = log.put(sys_flag=PREPARED, props={"KEYS": "k"})
    log.put(sys_flag=ROLLBACK, props={"KEYS": "k"})
    store = SmallStore(tmp_path, log)

    store.dispatch()

    assert store.index.query("topic", "k", 64).offsets == [prepared]


def test_a_delayed_record_holds_its_delivery_time(tmp_path: Path) -> None:
    log = SmallLog()
    log.put(SCHEDULE_TOPIC, 2, props={"DELAY": "3", "TAGS": "a"})
    log.put(SCHEDULE_TOPIC, 17, props={"DELAY": "25"})
    log.put(SCHEDULE_TOPIC, 0, props={"DELAY": "x", "TAGS": "a"})
    store = SmallStore(tmp_path, log)

    store.dispatch()

    assert store.entries(SCHEDULE_TOPIC, 2)[0][2] == BORN_MS + 10_000
    assert store.entries(SCHEDULE_TOPIC, 17)[0][2] == BORN_MS + 7_200_000
    assert store.entries(SCHEDULE_TOPIC, 0)[0][2] == string_hash("a")


def test_a_multi_dispatched_record_is_an_entry_of_each_queue(tmp_path: Path) -> None:
    log = SmallLog()
    props = {"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b", "INNER_MULTI_QUEUE_OFFSET": "0,0"}
    first = log.put("topic", 3, props=props)
    second = log.put("topic", 3, props=props | {"INNER_MULTI_QUEUE_OFFSET": "1,1"})
    store = SmallStore(tmp_path, log)
    reported: list[tuple[str, int]] = []
    store.dispatcher.add_listener(lambda keys: reported.extend(map(split_key, keys)))

    store.dispatch()

    for topic, queue_id in (("topic", 3), ("%LMQ%a", 0), ("%LMQ%b", 0)):
        assert [entry[0] for entry in store.entries(topic, queue_id)] == [first, second]
    assert sorted(reported) == [("%LMQ%a", 0), ("%LMQ%b", 0), ("topic", 3)]


@pytest.mark.parametrize("offsets", ["0", "0,x", "0,-1", "0,99999999999999999999"])
def test_multi_dispatch_offsets_that_are_none_are_left_out(tmp_path: Path, offsets: str) -> None:
    log = SmallLog()
    log.put(props={"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b", "INNER_MULTI_QUEUE_OFFSET": offsets})
    store = SmallStore(tmp_path, log)

    store.dispatch()

    assert len(store.entries()) == 1
    assert store.entries("%LMQ%b") == []


def test_a_queue_that_begins_late_is_blank_before_its_first_entry(tmp_path: Path) -> None:
    log = SmallLog()
    offset = log.put(queue_offset=23)
    store = SmallStore(tmp_path, log)

    store.dispatch()

    queue = store.queues.get("topic", 0)
    assert queue is not None
    assert (queue.min_index, queue.max_index) == (23, 24)
    files = list((tmp_path / "consumequeue/topic/0").iterdir())
    assert [path.name for path in files] == [f"{400:020d}"]
    content = files[0].read_bytes()
    assert content[:60] == struct.pack(">qiq", *HOLE) * 3
    assert content[60:68] == struct.pack(">q", offset)
    assert content[80:] == bytes(120)


def test_a_gap_in_a_queue_repeats_the_entry_before_over_file_ends(tmp_path: Path) -> None:
    log = SmallLog()
    first = log.put(queue_offset=0)
    last = log.put(queue_offset=14)
    store = SmallStore(tmp_path, log)

    counts = store.dispatch().counts

    entries = store.entries()
    assert [entry[0] for entry in (entries[0], entries[14])] == [first, last]
    assert entries[1:14] == [entries[0]] * 13
    assert counts.holes_filled == 13


@pytest.mark.parametrize("queue_offset", [-1, 2**62, 2**63 - 1])
def test_a_queue_offset_that_no_queue_can_have_is_refused(
    tmp_path: Path, queue_offset: int
) -> None:
    log = SmallLog()
    log.put(queue_offset=0)
    log.put(queue_offset=queue_offset)
    after = log.put(queue_offset=1)
    store = SmallStore(tmp_path, log)

    counts = store.dispatch().counts

    assert counts.refused == 1
    assert [entry[0] for entry in store.entries()] == [0, after]


@pytest.mark.parametrize("topic", ["../../up", "a/b", "dots.are.out", "space d", ".."])
def test_a_topic_that_is_no_file_name_never_becomes_a_path(tmp_path: Path, topic: str) -> None:
    log = SmallLog()
    log.put(topic, props={"KEYS": "k"})
    log.put("ok")
    store = SmallStore(tmp_path / "store", log)

    counts = store.dispatch().counts

    assert counts.refused == 1
    assert [path.name for path in (tmp_path / "store/consumequeue").iterdir()] == ["ok"]
    assert [path.name for path in tmp_path.iterdir()] == ["store"]
    assert store.index.query(topic, "k", 64).offsets == [0]


def test_dispatching_again_leaves_queues_and_index_as_they_are(tmp_path: Path) -> None:
    log = SmallLog()
    for number in range(30):
        log.put(queue_id=number % 2, props={"KEYS": f"k{number % 4}", "UNIQ_KEY": f"u{number}"})
    store = SmallStore(tmp_path, log)
    store.dispatch()
    store.close()
    before = _files(tmp_path)

    again = SmallStore(tmp_path, log)
    counts = again.dispatch().counts
    again.close()

    assert _files(tmp_path) == before
    assert counts.different == counts.holes_filled == counts.refused == 0


def test_an_entry_that_disagrees_with_the_log_is_left_and_counted(tmp_path: Path) -> None:
    log = SmallLog()
    log.put()
    store = SmallStore(tmp_path, log)
    queue = store.queues.get_or_create("topic", 0)
    assert queue is not None
    queue.put(0, 777, 100, 5)

    counts = store.dispatch().counts

    assert store.entries() == [(777, 100, 5)]
    assert counts.different == 1


def test_a_tombstone_leaves_the_tags_code_that_stands_in_its_entry(tmp_path: Path) -> None:
    """The tags of the lost record are unknown; the entry before happens to have the same code."""
    log, index = SmallLog(), 512 // QUEUE_ENTRY_SIZE  # its tagsCode lies in the next sector
    for _ in range(index):
        log.put(body=b"", props={"TAGS": "a"})
    store = SmallStore(tmp_path, log, small_config(mapped_file_size_consume_queue=20 * 60))
    store.dispatch()
    offset = log.put(body=bytes(20), prepared_transaction_offset=TOMBSTONE_MARK)
    queue = store.queues.get("topic", 0)
    assert queue is not None
    queue.put(index, offset, log.max_offset - offset, string_hash("a"))
    entries = store.entries()

    store.dispatch()

    assert store.entries() == entries


def test_missing_entries_inside_a_queue_are_made_again(tmp_path: Path) -> None:
    log = SmallLog()
    for _ in range(35):
        log.put()
    store = SmallStore(tmp_path, log)
    store.dispatch()
    entries = store.entries()
    store.close()
    path = tmp_path / "consumequeue/topic/0" / f"{200:020d}"
    content = bytearray(path.read_bytes())
    content[40:100] = bytes(60)
    path.write_bytes(content)

    again = SmallStore(tmp_path, log)
    queue = again.queues.get("topic", 0)
    assert queue is not None
    assert [i for i, entry in queue.entries(0, 35) if entry.is_missing] == [12, 13, 14]
    again.dispatch()

    assert again.entries() == entries


def test_a_body_with_a_wrong_crc_keeps_its_entries(tmp_path: Path) -> None:
    log = SmallLog()
    offset = log.put(body=b"whole", props={"KEYS": "k"})
    log.damage(offset + 88, b"X")
    store = SmallStore(tmp_path, log)

    store.dispatch()

    assert [entry[0] for entry in store.entries()] == [offset]
    assert store.index.query("topic", "k", 64).offsets == [offset]


def test_properties_torn_to_zeros_keep_the_queue_entry(tmp_path: Path) -> None:
    log = SmallLog()
    offset = log.put(props={"KEYS": "key", "TAGS": "tag"})
    end = log.max_offset
    log.damage(end - 15, bytes(15))
    after = log.put()
    store = SmallStore(tmp_path, log)

    counts = store.dispatch().counts

    assert [(entry[0], entry[2]) for entry in store.entries()] == [(offset, 0), (after, 0)]
    assert (counts.defects, counts.lost_bytes) == (1, 0)


def test_a_record_whose_lengths_disagree_is_skipped_by_its_size(tmp_path: Path) -> None:
    log = SmallLog()
    first = log.put()
    rotten = log.put(body=b"x" * 40)
    log.damage(rotten + 84, struct.pack(">i", 41))
    after = log.put()
    store = SmallStore(tmp_path, log)

    counts = store.dispatch().counts

    entries = store.entries()
    assert [entries[0][0], entries[2][0]] == [first, after]
    assert entries[1] == entries[0]
    assert (counts.defects, counts.lost_bytes) == (1, after - rotten)


@pytest.mark.parametrize("total", [0, 5, -1, 3000])
def test_after_a_bad_magic_and_size_the_next_record_is_found(tmp_path: Path, total: int) -> None:
    log = SmallLog()
    rotten = log.put()
    after = log.put()
    log.roll()
    far = log.put()
    log.damage(rotten, struct.pack(">iI", total, 0xDEADBEEF))
    store = SmallStore(tmp_path, log)

    counts = store.dispatch().counts

    assert [entry[0] for entry in store.entries()] == [0, after, far]
    assert store.entries()[0] == HOLE
    assert counts.lost_bytes == after - rotten


def test_a_forged_record_inside_a_damaged_one_is_not_taken_for_the_next(tmp_path: Path) -> None:
    log = SmallLog()
    forged = SmallLog()
    rotten = log.put(body=bytes(300))
    inner = 88 + 100
    forged.wrote[0] = inner
    forged.put("forged")
    after = log.put()
    last = log.put()
    store = SmallStore(tmp_path, log)
    store.dispatch()
    store.close()
    log.damage(rotten + inner, bytes(forged.segments[0][inner : forged.wrote[0]]))
    log.damage(rotten, struct.pack(">iI", -1, 0))

    again = SmallStore(tmp_path, log)
    again.dispatch()

    assert again.entries("forged") == []
    assert [entry[0] for entry in again.entries()] == [rotten, after, last]


def test_records_without_entries_before_the_named_one_are_found(tmp_path: Path) -> None:
    log = SmallLog()
    rotten = log.put()
    prepared = log.put(sys_flag=PREPARED, props={"KEYS": "p"})
    log.put()
    store = SmallStore(tmp_path, log, indexed=False)
    store.dispatch()
    store.close()
    log.damage(rotten, struct.pack(">iI", -1, 0))

    again = SmallStore(tmp_path, log)
    again.dispatch()

    assert again.index.query("topic", "p", 64).offsets == [prepared]


def test_nothing_is_read_beyond_the_readable_end(tmp_path: Path) -> None:
    log = SmallLog()
    log.put()
    end = log.max_offset
    log.put()
    log.wrote[-1] = end
    store = SmallStore(tmp_path, log)

    store.dispatch()

    assert store.marks.dispatched == end
    assert len(store.entries()) == 1


def test_a_blank_record_at_the_logs_end_waits_for_the_next_segment(tmp_path: Path) -> None:
    log = SmallLog()
    log.put()
    end = log.max_offset
    log.roll()
    log.segments.pop()
    log.wrote = [end + 8]
    store = SmallStore(tmp_path, log)
    store.dispatch()
    assert store.dispatcher.position == end

    log.wrote = [SEGMENT, 0]
    log.segments.append(bytearray(SEGMENT))
    offset = log.put()
    store.dispatch()

    assert [entry[0] for entry in store.entries()] == [0, offset]


def test_a_missing_segment_is_passed_over_and_counted(tmp_path: Path) -> None:
    log = SmallLog()
    log.put()
    log.roll()
    log.put()
    log.roll()
    last = log.put()
    log.missing.add(1)
    store = SmallStore(tmp_path, log)

    counts = store.dispatch().counts

    assert [entry[0] for entry in store.entries()] == [0, 0, last]
    assert counts.lost_bytes == SEGMENT


def test_what_expired_before_dispatch_is_counted_as_lost(tmp_path: Path) -> None:
    log = SmallLog()
    log.put()
    log.roll()
    offset = log.put()
    log.min_offset = SEGMENT
    store = SmallStore(tmp_path, log)

    counts = store.dispatch().counts

    assert [entry[0] for entry in store.entries()] == [0, offset]
    assert counts.lost_bytes == SEGMENT


def test_inline_dispatch_makes_a_record_readable_at_once(tmp_path: Path) -> None:
    log = SmallLog()
    store = SmallStore(tmp_path, log)
    for number in range(40):
        offset = log.put(props={"KEYS": f"k{number}"})

        assert store.dispatcher.run_inline(log.max_offset)

        assert store.marks.dispatched == log.max_offset
        assert store.entries()[-1][0] == offset
        assert store.index.query("topic", f"k{number}", 1).offsets == [offset]


def test_what_was_dispatched_inline_is_synced_by_the_next_flush(tmp_path: Path) -> None:
    log = SmallLog()
    store = SmallStore(tmp_path, log)
    for number in range(1, 6):
        log.put()
        store.dispatcher.run_inline(log.max_offset)

        assert store.queues.flush()

        queue = store.queues.get("topic", 0)
        assert queue is not None
        assert queue.files.flushed_where == number * QUEUE_ENTRY_SIZE
    assert not store.queues.flush()


def test_inline_dispatch_steps_back_while_another_thread_dispatches(tmp_path: Path) -> None:
    log = SmallLog()
    store = SmallStore(tmp_path, log)
    log.put()

    with store.dispatcher._lock:
        assert not store.dispatcher.run_inline(log.max_offset)

    assert store.dispatcher.step(0.0) == float("inf")
    assert store.marks.dispatched == log.max_offset


def test_a_step_with_nothing_to_do_keeps_no_append_from_dispatching(tmp_path: Path) -> None:
    log = SmallLog()
    log.put()
    store = SmallStore(tmp_path, log)
    store.dispatch()
    with store.dispatcher._lock:
        assert store.dispatcher.step(0.0) == math.inf


def test_the_index_catches_up_by_itself_and_then_goes_with_the_queues(tmp_path: Path) -> None:
    log = SmallLog()
    offsets = [log.put(props={"KEYS": f"k{number % 5}"}) for number in range(30)]
    queues_only = SmallStore(tmp_path, log, indexed=False)
    queues_only.dispatch()
    queues_only.close()

    store = SmallStore(tmp_path, log, position=log.max_offset)
    complete_before = store.marks.index_complete
    last = log.put(props={"KEYS": "k0"})
    store.dispatcher.run_inline(log.max_offset)
    assert store.entries()[-1][0] == last
    assert store.index.query("topic", "k0", 64).offsets == []

    assert store.dispatcher.step(0.0) == float("inf")

    assert (complete_before, store.marks.index_complete) == (False, True)
    assert store.index.query("topic", "k0", 64).offsets == [last, *offsets[25::-5]]
    assert store.dispatcher.counts.indexed == 31


def test_a_message_cut_off_between_its_keys_gets_only_the_missing_ones(tmp_path: Path) -> None:
    log = SmallLog()
    for number in range(6):
        log.put(props={"UNIQ_KEY": f"u{number}", "KEYS": "a b c"})
    whole = SmallStore(tmp_path / "whole", log)
    whole.dispatch()

    half = SmallStore(tmp_path / "half", log)
    end = log.max_offset
    half.log = log
    for number in range(3):
        half.dispatcher.run_inline((number + 1) * (end // 6))
    third = 3 * (end // 6)
    for key in ("topic#u3", "topic#a"):
        half.index._put_key(index_hash(key), third, BORN_MS)
    half.close()

    again = SmallStore(tmp_path / "half", log, position=0)
    again.dispatch()

    assert again.index_bytes() == whole.index_bytes()


@pytest.mark.parametrize("store_format", [V4, pytest.param(V5, marks=pytest.mark.slow)])
@settings(max_examples=examples(40), deadline=None)
@given(data=st.data())
def test_slow_and_fast_path_write_the_same_bytes(
    store_format: StoreFormat, data: st.DataObject
) -> None:
    log = SmallLog(store_format)
    text = st.text(st.sampled_from("ab Z1é主😀"), max_size=12)
    for _ in range(data.draw(st.integers(1, 40))):
        props = {"KEYS": data.draw(text), "TAGS": data.draw(text), "UNIQ_KEY": data.draw(text)}
        log.put(
            data.draw(st.sampled_from(["t1", "t2", SCHEDULE_TOPIC])),
            data.draw(st.integers(0, 2)),
            props={name: value for name, value in props.items() if value},
            body=b"x" * data.draw(st.integers(0, 300)),
            sys_flag=data.draw(st.sampled_from([0, 0, 0, PREPARED, COMMIT, ROLLBACK])),
            store_ms=BORN_MS + data.draw(st.integers(0, 10**7)),
            born_host=data.draw(st.sampled_from([HOST, HOST_V6])),
        )
    with tempfile.TemporaryDirectory() as directory:
        fast, slow = (SmallStore(Path(directory) / name, log) for name in ("fast", "slow"))
        fast.dispatch()
        position = 0
        while position < log.max_offset:
            stretch = slow.dispatcher._stretch(position, log.max_offset)
            if stretch is None:
                position = slow.dispatcher._after_segment(position)
            else:
                position, _ = slow.dispatcher._handle_one(stretch, slow.index, True)
        fast.close()
        slow.close()
        assert _files(fast.paths.consume_queue) == _files(slow.paths.consume_queue)
        assert fast.index_bytes() == slow.index_bytes()


def test_a_full_disk_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = SmallLog()
    log.put(props={"KEYS": "k"})
    store = SmallStore(tmp_path, log)
    (tmp_path / "consumequeue").write_text("in the way")

    assert not store.dispatcher.run_inline(log.max_offset)
    assert store.dispatcher.step(5.0) == 6.0
    assert store.marks.dispatched == 0

    (tmp_path / "consumequeue").unlink()
    store.dispatcher.step(6.0)
    assert len(store.entries()) == 1


def test_delay_levels_come_from_the_settings(tmp_path: Path) -> None:
    log = SmallLog()
    log.put(SCHEDULE_TOPIC, 0, props={"DELAY": "9"})
    store = SmallStore(tmp_path, log, small_config(message_delay_level="2s 3d"))

    store.dispatch()

    assert store.entries(SCHEDULE_TOPIC)[0][2] == BORN_MS + 3 * 86_400_000


def _files(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and path.name != "checkpoint"
    }
