"""Batches put as their producers encoded them, beside their messages."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.storage._kernel import EncodedBatch, NameRules, Reason, key_digests
from mqstore.storage.codec import properties
from mqstore.storage.codec.batch import decode_batch, encode_batch
from mqstore.storage.codec.record import Message
from mqstore.storage.errors import MessageInvalid, MessageTooLarge, OriginalsUnread
from mqstore.storage.layout import SysFlag
from mqstore.storage.message_store import MessageStore
from tests.simulation import SimulatedMachine
from tests.unit.storage.puts import put_batch, put_encoded, put_message
from tests.unit.storage.record_examples import plain_messages, raw_properties
from tests.unit.storage.stores import CONFIG, message, open_store
from tests.unit.storage.test_put_in_one_call import log_and_derived, open_simulated

TIME = 1_700_000_000_000


def template(store: MessageStore, topic: str = "T", queue_id: int = 0) -> Message:
    return Message(topic, queue_id, None, b"", store.host, store.host, TIME)


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
                placed += put_batch(store, decode_batch(data, one, store_format=store.format))
        store.close()
        left.append(log_and_derived(machine))
        placements.append(placed)
    assert left[0] == left[1]
    assert placements[0] == placements[1]


def test_a_plain_batch_goes_through_the_kernel_alone(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        batch = store.log.end.read_batch(template(store), encoded(store, 1, 2, 3))
        assert batch is not None
        assert (len(batch), batch.message) == (3, template(store))
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
def test_parts_that_do_not_add_up_are_left_to_python(tmp_path: Path, spoil) -> None:  # type: ignore[no-untyped-def]  # pytest's own
    with opened(tmp_path) as store:
        data = spoil(encoded(store, 1, 2))
        assert store.log.end.read_batch(template(store), data) is None
        with pytest.raises(MessageInvalid):
            put_encoded(store, data, template(store))
        assert store.queues.get("T", 0).max_index == 1  # type: ignore[union-attr]  # it is there


@pytest.mark.parametrize(
    "fields",
    [
        {"properties": b"DELAY\x011"},
        {"properties": b"UNIQ_KEY\x01\xc3\xa9"},
        {"properties": b"INNER_MULTI_DISPATCH\x01%LMQ%a"},
        {"properties": b"KEYS\x01" + b" ".join(b"%d" % n for n in range(70))},
        {"properties": b"no separator"},
        {"properties": b"k\x01v\x02__CRC32#\x010123456789\x02"},
        {"properties": b"a\x01\0"},
        {"body": bytes(65_536)},
    ],
)
def test_a_message_that_is_not_plain_leaves_its_batch_to_python(
    tmp_path: Path, fields: dict[str, bytes]
) -> None:
    with opened(tmp_path) as store:
        odd = message(store, 1).replace(**fields)
        data = encode_batch([message(store, 2), odd])
        assert store.log.end.read_batch(template(store), data) is None


@pytest.mark.parametrize("sys_flag", [4, 8, 12, int(SysFlag.INNER_BATCH)])
def test_what_all_share_must_be_plain(tmp_path: Path, sys_flag: int) -> None:
    with opened(tmp_path) as store:
        shared = template(store).replace(sys_flag=sys_flag)
        assert store.log.end.read_batch(shared, encoded(store, 1)) is None
        assert store.log.end.read_batch(template(store, "日本"), encoded(store, 1)) is None
        assert store.log.end.read_batch(template(store, queue_id=-1), encoded(store, 1)) is None


def test_a_batch_over_the_limit_is_refused_by_name(tmp_path: Path) -> None:
    config = CONFIG.model_copy(update={"max_message_size": 400})
    with open_store(tmp_path, config) as store:
        data = encoded(store, *range(10))
        assert store.log.end.read_batch(template(store), data) is None
        with pytest.raises(MessageTooLarge):
            put_encoded(store, data, template(store))


def test_nothing_is_stored_while_it_may_not_be_whole(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        batch = store.log.end.read_batch(template(store), encoded(store, 1, 2))
        new_queue = store.log.end.read_batch(template(store, queue_id=9), encoded(store, 1))
        assert batch is not None and new_queue is not None
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


FREE = ("KEYS", "TAGS", "UNIQ_KEY", "INNER_MULTI_DISPATCH")
REFUSED = ("other", "KEY")
RULES = NameRules([name.encode() for name in FREE], [name.encode() for name in REFUSED])


@given(raw_properties)
def test_what_the_rules_let_pass_has_only_names_that_may_be_given(data: bytes) -> None:
    machine = SimulatedMachine(1)
    with open_simulated(machine) as store:
        one = message(store, 1).replace(properties=data)
        plain = store.log.end.read_batch(template(store), encode_batch([one]))
        allowed = store.log.end.read_batch(template(store), encode_batch([one]), RULES)
    found = properties.decode(data)
    ours = {name: value for name, value in found.items() if name not in FREE}
    fits = not any(name in REFUSED for name in ours) and all(
        text.isascii() and text.isprintable() for pair in ours.items() for text in pair
    )
    if allowed is not None:
        assert fits
        assert allowed.keys == [found.get("UNIQ_KEY", "")]
    elif plain is not None:
        # A part without effect, of a name that is given again, is looked at, too.
        assert not fits or data.count(b"\x01") > len(found)


def once(store: MessageStore, *numbers: int) -> tuple[list[int], set[int]]:
    """Queue offsets of messages under their unique keys, and which of them are duplicates."""
    batch = store.log.end.read_batch(template(store), encoded(store, *numbers))
    assert isinstance(batch, EncodedBatch)
    placed, duplicates = store.append(batch, batch.keys)
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
        batch = store.log.end.read_batch(template(store), encoded(store, 1, 2, 3))
        assert batch is not None
        with pytest.raises(OriginalsUnread):
            store.append(batch, batch.keys, reads_max=2)
        assert store.log.max_offset == end
        placed, duplicates = store.append(batch, batch.keys, reads_max=3)
        assert [each.queue_offset for each in placed] == [1, 2, 3]
        assert duplicates == {0}


def test_without_a_window_a_batch_is_put_again(tmp_path: Path) -> None:
    config = CONFIG.model_copy(update={"unique_key_window_count": 0})
    with open_store(tmp_path, config) as store:
        put_message(store, message(store, 0))
        assert once(store, 1) == ([1], set())
        assert once(store, 1) == ([2], set())
