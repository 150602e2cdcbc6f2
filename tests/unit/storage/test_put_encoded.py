"""Batches put as their producers encoded them, beside their messages."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.storage._kernel import EncodedBatch, Reason, key_digests
from mqstore.storage.codec import properties
from mqstore.storage.codec.batch import encode_batch
from mqstore.storage.codec.record import Message
from mqstore.storage.errors import (
    MessageInvalid,
    MessageTooLarge,
    OriginalsUnread,
    PropertyError,
    StorageError,
)
from mqstore.storage.message_store import MessageStore
from mqstore.storage.topic_names import check_user_property
from mqstore.writer.sends import CLIENT_PROPERTIES
from tests.simulation import SimulatedMachine
from tests.unit.storage.puts import put_batch, put_encoded, put_message
from tests.unit.storage.record_examples import plain_messages, raw_properties
from tests.unit.storage.sends import decode_batch, sends_of
from tests.unit.storage.stores import CONFIG, message, open_store
from tests.unit.storage.test_put_in_one_call import log_and_derived, open_simulated

TIME = 1_700_000_000_000


def template(store: MessageStore, topic: str = "T", queue_id: int = 0) -> Message:
    return Message(topic, queue_id, None, b"", store.host, store.host, TIME)


def read(store: MessageStore, data: bytes, queue_id: int = 0) -> EncodedBatch:
    return sends_of(store).read_batch(data, store.host, queue_id)


def encoded(store: MessageStore, *numbers: int) -> bytes:
    return encode_batch([message(store, number) for number in numbers])


def opened(path: Path) -> MessageStore:
    """A store whose queue is known, so that a plain batch goes in one call."""
    store = open_store(path)
    put_message(store, message(store, 0))
    return store


@given(st.lists(st.lists(plain_messages(), min_size=1, max_size=12), max_size=12))
def test_they_leave_the_bytes_that_their_messages_leave(batches: list[list[Message]]) -> None:
    left, placements = [], []
    for is_encoded in (True, False):
        machine = SimulatedMachine(1)
        store = open_simulated(machine)
        placed = []
        for number, batch in enumerate(batches):
            one, data = template(store, queue_id=number % 2), encode_batch(batch)
            if is_encoded:
                placed += put_encoded(store, data, one)
            else:
                placed += put_batch(store, decode_batch(data, one))
        store.close()
        left.append(log_and_derived(machine))
        placements.append(placed)
    assert left[0] == left[1]
    assert placements[0] == placements[1]


def test_a_plain_batch_goes_through_the_kernel_alone(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        data = encoded(store, 1, 2, 3)
        batch = read(store, data)
        (born,) = {each.born_timestamp_ms for each in batch.messages()}
        shared = template(store).replace(born_timestamp_ms=born)
        assert batch.messages() == decode_batch(data, shared)
        assert batch.digests == key_digests("T", batch.keys)
        placed = store.log.end.put(batch)
        assert isinstance(placed, list)
        assert [each.queue_offset for each in placed] == [1, 2, 3]
        assert store.state.dispatched_offset == placed[-1].end == store.log.max_offset
        assert store.lookups.by_unique_key("T", batch.keys[2]).queue_offset == 3


def changed(data: bytes, at: int, value: bytes) -> bytes:
    return data[:at] + value + data[at + len(value) :]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: b"",
        lambda data: data[:-1],
        lambda data: data + b"\0",
        lambda data: changed(data, 0, struct.pack(">i", 21)),
        lambda data: changed(data, 0, struct.pack(">i", -1)),
        lambda data: changed(data, 16, struct.pack(">i", -1)),
        lambda data: changed(data, 16, struct.pack(">i", 1 << 30)),
        lambda data: changed(data, 16, struct.pack(">i", 0)),
    ],
)
def test_parts_that_do_not_add_up_are_refused(tmp_path: Path, spoil) -> None:  # type: ignore[no-untyped-def]  # pytest's own
    with opened(tmp_path) as store:
        data = spoil(encoded(store, 1, 2))
        with pytest.raises(MessageInvalid):
            put_encoded(store, data, template(store))
        assert store.queues.get("T", 0).max_index == 1  # type: ignore[union-attr]  # it is there


@pytest.mark.parametrize(
    "fields",
    [
        {"properties": b"UNIQ_KEY\x01\xc3\xa9"},
        {"properties": b"UNIQ_KEY\x01\xff"},
        {"properties": b"KEYS\x01" + b" ".join(b"%d" % n for n in range(70))},
        {"properties": b"INNER_MULTI_DISPATCH\x01%LMQ%a"},
        {"body": bytes(65_536)},
    ],
)
def test_an_unusual_message_is_put_with_its_batch(tmp_path: Path, fields: dict[str, bytes]) -> None:
    config = CONFIG.model_copy(update={"mapped_file_size_commit_log": 1 << 20})
    with open_store(tmp_path, config) as store:
        put_message(store, message(store, 0))
        odd = message(store, 1).replace(**fields)
        placed = put_encoded(store, encode_batch([message(store, 2), odd]), template(store))
        found = store.log.record_at(placed[1].physical_offset)
        assert (found.body, found.raw_properties) == (odd.body, odd.properties)
        assert placed[1].queue_offset == 2
        assert read(store, encode_batch([odd])).keys == [found.uniq_key or ""]


@pytest.mark.parametrize(
    ("properties", "error"),
    [
        (b"DELAY\x011", PropertyError),
        (b"PGROUP\x01g", PropertyError),
        (b"a\x01\0", PropertyError),
        (b"KEYS\x01\0", PropertyError),
        (b"no separator", MessageInvalid),
        (b"k\x01v\x02__CRC32#\x010123456789\x02", PropertyError),
    ],
)
def test_a_message_that_is_refused_is_named(
    tmp_path: Path, properties: bytes, error: type[StorageError]
) -> None:
    with opened(tmp_path) as store:
        odd = message(store, 1).replace(properties=properties)
        with pytest.raises(error) as caught:
            read(store, encode_batch([message(store, 2), odd]))
        assert caught.value.index == 1


def test_a_batch_over_the_limit_is_refused_by_name(tmp_path: Path) -> None:
    config = CONFIG.model_copy(update={"max_message_size": 400})
    with open_store(tmp_path, config) as store, pytest.raises(MessageTooLarge):
        put_encoded(store, encoded(store, *range(10)), template(store))


def test_nothing_is_stored_while_it_may_not_be_whole(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        batch, new_queue = read(store, encoded(store, 1, 2)), read(store, encoded(store, 1), 9)
        end = store.log.max_offset
        assert store.log.end.put(new_queue) is Reason.NEEDS_QUEUE
        store.log.end.holders += 1
        assert store.log.end.put(batch) is Reason.NEEDS_LOCK
        store.log.end.holders -= 1
        store.log.end.room_end = store.log.end.position + 100
        assert store.log.end.put(batch) is Reason.NEEDS_ROOM
        assert (store.log.max_offset, store.state.max_offset) == (end, end)


def test_batches_go_on_over_files_of_queue_index_and_log(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        for first in range(0, 1500, 30):
            data = encoded(store, *range(first, first + 30))
            placed = put_encoded(store, data, template(store))
            assert [each.queue_offset for each in placed] == list(range(first, first + 30))
        assert len(store.log.files.files) > 3
        assert len(store.index.files) > 3
        assert store.dispatcher.records == 1500
        found = store.lookups.by_unique_key("T", f"U{1499:031d}")
        assert found.queue_offset == 1499


@given(raw_properties)
def test_what_is_read_has_only_properties_that_may_be_given(data: bytes) -> None:
    machine = SimulatedMachine(1)
    found = properties.decode(data)
    with open_simulated(machine) as store:
        one = message(store, 1).replace(properties=data)
        try:
            batch = read(store, encode_batch([one]))
        except StorageError:
            return
        assert batch.messages()[0].properties == data
        assert batch.keys == [found.get("UNIQ_KEY", "")]
        for name, value in found.items():
            if name not in CLIENT_PROPERTIES:
                check_user_property(name, value, store.format)


def once(store: MessageStore, *numbers: int) -> tuple[list[int], set[int]]:
    """Queue offsets of messages under their unique keys, and which of them are duplicates."""
    placed, duplicates = store.append(read(store, encoded(store, *numbers)))
    return [each.queue_offset for each in placed], set(duplicates)


def test_a_message_of_a_batch_that_was_put_before_is_not_stored_again(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        assert once(store, 1, 2) == ([1, 2], set())
        assert once(store, 3, 2) == ([3, 2], {1})
        assert once(store, 4, 4) == ([4, 4], {1})
        assert once(store, 3) == ([3], {0})


def test_a_batch_with_duplicates_that_is_too_long_to_read_now_is_not_stored(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        once(store, 1)
        end = store.log.max_offset
        batch = read(store, encoded(store, 1, 2, 3))
        with pytest.raises(OriginalsUnread):
            store.append(batch, reads_max=0)
        assert store.log.max_offset == end
        placed, duplicates = store.append(batch, reads_max=3)
        assert [each.queue_offset for each in placed] == [1, 2, 3]
        assert duplicates == {0}


def test_without_a_window_a_batch_is_put_again(tmp_path: Path) -> None:
    config = CONFIG.model_copy(update={"unique_key_window_count": 0})
    with open_store(tmp_path, config) as store:
        put_message(store, message(store, 0))
        assert once(store, 1) == ([1], set())
        assert once(store, 1) == ([2], set())
