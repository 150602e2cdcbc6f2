"""Look-ups of many: each has the result of its single look-up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.storage.codec import message_id
from mqstore.storage.codec.record import Record
from mqstore.storage.errors import QueueUnknown, StorageError, StoreNotOpen
from mqstore.storage.lookup.bulk import by_message_ids, by_unique_keys
from mqstore.storage.queues.queue_entry import QueueEntry
from tests.unit.storage.lookup.memory_store import HOLE, HOST, HOST_V6, Store
from tests.unit.storage.puts import put_message
from tests.unit.storage.stores import message, open_store

NO_LIMIT = 1 << 40


def singly(read: Callable[[str], Record], names: Sequence[str]) -> list[tuple[type, object]]:
    found: list[tuple[type, object]] = []
    for each in names:
        try:
            found.append(described(read(each)))
        except StorageError as error:
            found.append(described(error))
    return found


def described(found: Record | StorageError) -> tuple[type, object]:
    return type(found), found.raw if isinstance(found, Record) else str(found)


def test_each_id_has_its_record_or_its_own_error(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        placed = [put_message(store, message(store, number)) for number in range(4)]
        ids = [each.offset_message_id for each in placed]
        host = message_id.decode(ids[0])[0]
        wanted = [ids[3], "", ids[0], "no id", message_id.encode(host, 1), ids[0].lower()]
        wanted += [message_id.encode(host, 1 << 40), message_id.encode(HOST, 0), ids[2], ids[1]]
        found = by_message_ids(store.lookups, wanted)
        assert [described(each) for each in found] == singly(store.lookups.by_message_id, wanted)
        assert sum(isinstance(each, Record) for each in found) == 5


@given(st.data())
def test_ids_are_looked_up_as_one_by_one(draw: st.DataObject) -> None:
    store = Store()
    hosts = draw.draw(st.lists(st.sampled_from([HOST, HOST_V6]), min_size=1, max_size=6))
    offsets = [store.put(body=b"body%d" % n, host=host) for n, host in enumerate(hosts)]
    if draw.draw(st.booleans()):
        store.log.min_offset = draw.draw(st.sampled_from(offsets))
    for damaged in draw.draw(st.lists(st.sampled_from(offsets), max_size=2, unique=True)):
        store.log.data[damaged + 95] ^= 1
    ids = [message_id.encode(*each) for each in zip(hosts, offsets, strict=True)]
    wanted = draw.draw(st.lists(st.sampled_from([*ids, "x", "0" * 32, "F" * 56]), max_size=9))
    found = by_message_ids(store.lookups, wanted, NO_LIMIT)
    assert [described(each) for each in found] == singly(store.lookups.by_message_id, wanted)


@given(st.lists(st.sampled_from("abcd"), max_size=8), st.integers(0, 1_000))
def test_unique_keys_are_looked_up_as_one_by_one_up_to_a_size(keys: list[str], most: int) -> None:
    store = Store()
    for size, key in enumerate("abca"):
        store.put(uniq_key=key, body=bytes(100 * size))
    found = by_unique_keys(store.lookups, "T", keys, most)
    each = singly(lambda key: store.lookups.by_unique_key("T", key), keys)
    assert [described(one) for one in found] == each[: len(found)]
    sizes = [one.size if isinstance(one, Record) else 0 for one in found]
    assert sum(sizes) <= most or sum(size > 0 for size in sizes) <= 1
    assert bool(found) == bool(keys)


def test_a_store_that_keeps_changing_fails_the_whole_look_up() -> None:
    store = Store()
    store.put()
    store.bounds.bound_words[5].value = 1
    with pytest.raises(StoreNotOpen):
        by_message_ids(store.lookups, [message_id.encode(HOST, 0)])


@given(
    times=st.lists(st.lists(st.integers(0, 50), max_size=6), min_size=1, max_size=4),
    wanted=st.integers(-1, 51),
    hole=st.integers(0, 5),
)
def test_offsets_by_time_are_those_of_each_queue(
    times: list[list[int]], wanted: int, hole: int
) -> None:
    store = Store()
    for queue_id, of_queue in enumerate(times):
        for stored_ms in sorted(of_queue):
            store.put("T", queue_id, stored_ms=stored_ms)
    stored: list[QueueEntry] = store.queues["T", 0].stored if ("T", 0) in store.queues else []
    if hole < len(stored):
        stored[hole] = HOLE
    queues = [("T", queue_id) for queue_id in range(len(times))]
    queues = [("none", 0), *queues, ("T", 99), queues[0]]
    found = store.lookups.offsets_by_time(queues, wanted)
    for queue, each in zip(queues, found, strict=True):
        if each is None:
            with pytest.raises(QueueUnknown):
                store.lookups.offset_by_time(*queue, wanted)
        else:
            bounds, offset = each
            assert bounds == store.lookups.queue_range(*queue)
            assert offset == store.lookups.offset_by_time(*queue, wanted)
