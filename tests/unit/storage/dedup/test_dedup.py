"""Puts under unique keys, over restarts, by the whole store."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from mqstore.storage._kernel import EncodedBatch, Placement, key_digests
from mqstore.storage.codec import properties
from mqstore.storage.codec.record import Message, Record, encode_into, size_of
from mqstore.storage.config import StoreConfig
from mqstore.storage.dedup.puts import end_of
from mqstore.storage.dedup.tail import read_tail
from mqstore.storage.dedup.window import KeyWindow
from mqstore.storage.errors import OriginalsUnread, UniqueKeyTaken
from mqstore.storage.layout import HALF_TOPIC, SCHEDULE_TOPIC
from mqstore.storage.message_store import MessageStore
from mqstore.storage.metadata.clock_steps import NO_STEPS
from mqstore.storage.paths import segment_name
from tests.simulation.clock import SimulatedClock
from tests.unit.storage.stores import CONFIG, abandon, open_store

BODY_AT = 88
"""Bytes of a record with IPv4 hosts before its body."""


def _message(store: MessageStore, key: str, body: str | None = None, **props: str) -> Message:
    encoded = properties.encode(
        {"UNIQ_KEY": key} | props, trailing_separator=store.format.trailing_property_separator
    )
    text = (body if body is not None else f"body of {key}").encode()
    return Message("T", 0, text, encoded, store.host, store.host, 1)


def _batch(store: MessageStore, messages: list[Message], keys: list[str]) -> EncodedBatch:
    batch = store.log.encode(messages)
    batch.name_all(keys)
    return batch


class Put(NamedTuple):
    placements: list[Placement]
    repeats: frozenset[int]


def _put(store: MessageStore, *keys: str, **props: str) -> Put:
    messages = [_message(store, key, **props) for key in keys]
    return Put(*store.append(messages, keys, as_batch=len(messages) > 1 and not props))


def _count(store: MessageStore, topic: str = "T") -> int:
    return sum(queue.max_index for queue in store.queues.all() if queue.topic == topic)


def test_a_repeat_is_answered_with_where_the_first_stands(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        first = _put(store, "a")
        again = _put(store, "a")
        assert again.placements == first.placements
        assert (first.repeats, again.repeats) == (frozenset(), frozenset({0}))
        assert (end_of(again), _count(store)) == (store.log.max_offset, 1)


def test_a_batch_is_completed_in_its_order(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        (b,) = _put(store, "b").placements
        put = _put(store, "a", "b", "c", "d")
        assert put.placements[1] == b
        assert put.repeats == {1}
        assert [each.queue_offset for each in put.placements] == [1, 0, 2, 3]
        assert end_of(put) == store.log.max_offset
        assert _put(store, "a", "b", "c", "d").placements == put.placements


def test_many_repeats_are_read_before_the_append_and_others_put_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_store(tmp_path) as store:
        assert store.dedup is not None
        keys = [f"k{number}" for number in range(10)]
        messages = [_message(store, key) for key in keys]
        first = _put(store, *keys[:8])
        with pytest.raises(OriginalsUnread):
            store.append(messages, keys, reads_max=7)
        assert _count(store) == 8
        record_at = store.log.record_at
        between: list[Put] = []

        def read(offset: int) -> Record:
            between.append(_put(store, f"other-{len(between)}"))  # needs the lock of all puts
            return record_at(offset)

        with monkeypatch.context() as patched:
            patched.setattr(store.log, "record_at", read)
            originals = store.dedup.originals(_batch(store, messages, keys))
            assert len(between) == 8
            placements, repeats = store.append(messages, keys, originals=originals)
            assert len(between) == 8  # nothing was read again
        assert placements[:8] == first.placements
        assert repeats == set(range(8))
        assert _count(store) == 18


def test_originals_that_changed_since_they_were_read_are_read_again(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        assert store.dedup is not None
        messages = [_message(store, key) for key in ("a", "b")]
        originals = store.dedup.originals(_batch(store, messages, ["a", "b"]))
        (a,) = _put(store, "a").placements
        put = store.append(messages, ["a", "b"], originals=originals)
        assert put == ([a, put[0][1]], frozenset({0}))
        assert _count(store) == 2


def test_equal_messages_of_one_request_are_stored_once(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        put = _put(store, "a", "b", "a")
        assert put.placements[0] == put.placements[2]
        assert (put.repeats, _count(store)) == (frozenset({2}), 2)


@pytest.mark.parametrize("before", [True, False])
def test_another_body_under_a_key_is_refused_and_nothing_is_stored(
    tmp_path: Path, before: bool
) -> None:
    with open_store(tmp_path) as store:
        other = _message(store, "a", "another")
        messages = [_message(store, "new"), other]
        keys = ["new", "a"]
        if before:
            _put(store, "a")
        else:
            messages.append(_message(store, "a"))
            keys.append("a")
        end = store.log.max_offset
        with pytest.raises(UniqueKeyTaken, match="'a' of topic T"):
            store.append(messages, keys)
        assert store.log.max_offset == end
        assert not _put(store, "new").repeats


def test_keys_are_a_topics_own_and_none_never_repeats(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        _put(store, "a")
        message = _message(store, "a").replace(topic="U")
        assert not store.append([message], ["a"])[1]
        for _ in range(2):
            assert not store.append([_message(store, "x")], [None])[1]
        assert (_count(store), _count(store, "U")) == (3, 1)


def test_a_delayed_message_is_known_by_its_own_topic(tmp_path: Path) -> None:
    with open_store(tmp_path, deliver_delayed=False) as store:
        first = _put(store, "a", DELAY="18")
        assert _put(store, "a", DELAY="18").placements == first.placements
        assert _count(store, SCHEDULE_TOPIC) == 1
    with open_store(tmp_path, deliver_delayed=False) as store:
        assert _put(store, "a", DELAY="18").placements == first.placements


@pytest.mark.parametrize(
    ("killed", "queues_gone"), [(True, False), (False, False), (True, True), (False, True)]
)
def test_the_window_survives_a_restart(tmp_path: Path, killed: bool, queues_gone: bool) -> None:
    keys = [f"k{number}" for number in range(700)]
    store = open_store(tmp_path)
    first = [_put(store, key).placements[0] for key in keys]
    assert len(store.log.files.files) > 1
    if killed:
        abandon(store)
    else:
        store.close()
    if queues_gone:
        shutil.rmtree(store.paths.consume_queue)
    with open_store(tmp_path) as store:
        put = _put(store, *keys)
        assert put.placements == first
        assert len(put.repeats) == len(keys)


def test_keys_of_a_queue_that_was_lost_are_known_beside_those_of_one_that_is_there(
    tmp_path: Path,
) -> None:
    with open_store(tmp_path) as store:
        store.append([_message(store, "lost")], ["lost"])
        other = _message(store, "there").replace(queue_id=1)
        store.append([other], ["there"])
    shutil.rmtree(store.paths.consume_queue / "T" / "0")
    with open_store(tmp_path) as store:
        assert [_put(store, key).repeats for key in ("lost", "there")] == [{0}, {0}]


def test_without_queues_segments_that_are_too_old_are_not_read(tmp_path: Path) -> None:
    config = CONFIG.model_copy(update={"unique_key_window": 1})
    with open_store(tmp_path, config) as store:
        for number in range(700):
            _put(store, f"k{number}")
        _put(store, "newest")
    shutil.rmtree(store.paths.consume_queue)
    with open_store(tmp_path, config) as store:
        assert store.dedup is not None
        store.dedup.prepare()
        assert 0 < store.dedup.count < 700
        assert _put(store, "newest").repeats


def _read_tail(store: MessageStore) -> Callable[[], KeyWindow]:
    return read_tail(store.log, store.queues, store.config, NO_STEPS, lambda: 0.0)


def test_a_record_in_a_damaged_body_has_no_known_key(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        inner = _message(store, "forged")
        forged = bytearray(size_of(inner, 1))
        at = store.log.max_offset + BODY_AT
        head = {"queue_offset": 0, "physical_offset": at, "store_timestamp_ms": 1}
        encode_into(forged, 0, inner, version=1, **head)
        outer = Message("T", 0, bytes(forged) + b"x", b"", store.host, store.host, 1)
        placed, _ = store.append([outer])
        _put(store, "behind")
        with (tmp_path / "commitlog" / segment_name(0)).open("r+b") as file:
            file.seek(placed[0].physical_offset + 4)
            file.write(bytes(4))  # its magic

        window = _read_tail(store)()

        assert window.find(key_digests("T", ["forged"])) is None
        assert window.find(key_digests("T", ["behind"])) is not None


def test_segments_that_expire_before_they_are_read_hide_no_later_key(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        for number in range(700):
            _put(store, f"k{number}")
        read = _read_tail(store)
        assert store.expire(1) == 1
        assert 0 < read().count < 700


def test_a_segment_that_expires_as_it_is_read_hides_no_later_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_store(tmp_path) as store:
        for number in range(700):
            _put(store, f"k{number}")
        read = _read_tail(store)
        view_from = store.log.view_from

        def expired(offset: int) -> tuple[memoryview, int, int] | None:
            monkeypatch.undo()
            assert store.expire(1) == 1
            return view_from(offset)

        monkeypatch.setattr(store.log, "view_from", expired)
        assert 0 < read().count < 700


def test_what_is_put_after_the_opening_is_no_part_of_what_is_read(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        _put(store, "before")
        read = _read_tail(store)
        _put(store, "after")
        assert read().count == 1


def test_generated_keys_are_not_read_again(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        _put(store, "006D7173" + "0" * 24)
        _put(store, "given")
    with open_store(tmp_path) as store:
        assert store.dedup is not None
        store.dedup.prepare()
        assert store.dedup.count == 1


def test_a_record_that_expired_is_stored_again(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        _put(store, "a")
        for number in range(700):
            _put(store, f"k{number}")
        store.expire(1)
        assert not _put(store, "a").repeats


def test_what_a_deleted_topic_had_is_no_repeat_when_it_is_made_anew(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store.create_topic("T", queues=1)
        first = _put(store, "a")
        store.delete_topic("T")
        store.create_topic("T", queues=1)
        again = _put(store, "a")
        assert not again.repeats
        assert again.placements[0].queue_offset == first.placements[0].queue_offset + 1


@pytest.mark.parametrize("delay", ["", "5"])
@pytest.mark.parametrize("opened", ["", "close", "kill"])
@pytest.mark.parametrize("others", [0, 3])
def test_no_key_of_a_deleted_topic_is_one_of_its_successor(
    tmp_path: Path, delay: str, opened: str, others: int
) -> None:
    """The fillers in front of a queue that goes on name the log's begin, where the first is."""
    props = {"DELAY": delay} if delay else {}
    keys = ["a", "b", "c"]
    store = open_store(tmp_path, deliver_delayed=False)
    store.create_topic("T", queues=1)
    _put(store, *keys, **props)
    store.delete_topic("T")
    if opened == "close":
        store.close()
    elif opened == "kill":
        abandon(store)
    if opened:
        store = open_store(tmp_path, deliver_delayed=False)
    store.create_topic("T", queues=1)
    for number in range(others):
        _put(store, f"other{number}")
    first = [_put(store, key, **props) for key in keys]
    again = [_put(store, key, **props) for key in keys]
    assert [bool(each.repeats) for each in (*first, *again)] == [False] * 3 + [True] * 3
    assert [each.placements for each in again] == [each.placements for each in first]
    store.close()


def test_a_key_of_a_transaction_is_refused(tmp_path: Path) -> None:
    """Its half message may be rolled back: consumers would never get what was taken for it."""
    with open_store(tmp_path) as store:
        assert store.dedup is not None
        half = _message(store, "a", REAL_TOPIC="T", REAL_QID="0")
        (placed,), _ = store.append([half.replace(topic=HALF_TOPIC)])
        store.dedup.remember("T", ["a"], [placed])
        with pytest.raises(UniqueKeyTaken, match="of a transaction"):
            _put(store, "a")
        assert store.dedup.knows("T", ["a"])
        assert _count(store) == 0


def test_with_a_pool_a_repeat_of_what_is_not_committed_yet_is_known(tmp_path: Path) -> None:
    pooled = CONFIG.model_copy(
        update={"transient_store_pool_enable": True, "commit_interval_commit_log": 60_000}
    )
    with open_store(tmp_path, pooled) as store:
        first = _put(store, "a")
        assert _put(store, "a").placements == first.placements


def test_a_count_of_zero_switches_it_off(tmp_path: Path) -> None:
    with open_store(tmp_path, CONFIG.model_copy(update={"unique_key_window_count": 0})) as store:
        assert store.dedup is None
        assert [_put(store, "a").repeats for _ in range(2)] == [frozenset()] * 2


def _window(count: int, span_ms: int, clock: SimulatedClock | None = None) -> KeyWindow:
    config = StoreConfig(unique_key_window_count=count, unique_key_window=span_ms)
    return KeyWindow(config, (clock or SimulatedClock()).monotonic)


def _add(window: KeyWindow, key: str) -> None:
    host = open_store  # any object: a placement keeps it as it is
    window.add(key_digests("T", [key]), [Placement(7, 1, 0, 0, 1, host)])  # type: ignore[arg-type]  # not looked at


def _knows(window: KeyWindow, key: str) -> bool:
    return window.find(key_digests("T", [key])) == [7]


def test_a_key_is_known_while_fewer_others_came_than_the_count() -> None:
    window = _window(100, 1 << 40)
    for number in range(1_000):
        _add(window, f"k{number}")
        for back in range(min(number, 99)):
            assert _knows(window, f"k{number - back}")
    assert window.count <= 200
    assert not _knows(window, "k700")


def test_a_key_is_known_for_its_time() -> None:
    clock = SimulatedClock()
    window = _window(1 << 20, 1_000, clock)
    for now_ms in range(1, 10_000, 10):
        _add(window, f"k{now_ms}")
        assert _knows(window, f"k{max(1, now_ms - 1_000)}")
        clock.advance(0.01)
    assert window.count <= 204
    assert not _knows(window, "k1")


@pytest.mark.parametrize("step_ms", [86_400_000, -86_400_000])
def test_a_clock_that_is_set_makes_no_key_forgotten(step_ms: int) -> None:
    clock = SimulatedClock()
    window = _window(1 << 20, 1_000, clock)
    for number in range(10):
        _add(window, f"k{number}")
        clock.step(step_ms)
    assert all(_knows(window, f"k{number}") for number in range(10))
