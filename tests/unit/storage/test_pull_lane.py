"""A pull in one call: a whole reply that has what the other look-ups read, or none."""

from __future__ import annotations

import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.storage._kernel import (
    LANE_COUNT_MAX,
    LogWindow,
    PulledQueue,
    PullLane,
    Segment,
)
from mqstore.storage.codec.hosts import Host
from mqstore.storage.codec.record import Message
from tests.unit.storage.log_windows import bounds, plain_form
from tests.unit.storage.record_examples import log_of

HOST = Host.parse("127.0.0.1", 10911)
ENTRY = 20
START, FIELDS, ENDING = b"HTTP/1.1 200 OK\r\n", b"x-a: b\r\n", b"x-request-id: 1\r\n\r\n"


class MemoryQueue:
    """A queue of topic T over entries in memory, in files of a few entries each."""

    def __init__(self, entries: bytearray, per_file: int) -> None:
        self.min_index = 0
        self.entries = entries
        self._per_file = per_file
        size = per_file * ENTRY
        self.files = [memoryview(entries)[at : at + size] for at in range(0, len(entries), size)]
        self.looked_at: list[int] = []
        """Entries whose file was requested."""

    @property
    def max_index(self) -> int:
        sizes = [self.entries[at + 8 : at + 12] for at in range(0, len(self.entries), ENTRY)]
        return next((number for number, each in enumerate(sizes) if each == bytes(4)), len(sizes))

    def block(self, index: int) -> tuple[memoryview, int] | None:
        self.looked_at.append(index)
        number, at = divmod(index, self._per_file)
        return (self.files[number], at * ENTRY) if 0 <= number < len(self.files) else None


class Store:
    """A log of one queue, its entries with room for more, and its bounds."""

    def __init__(self, bodies: list[bytes], per_file: int = 64, room: int = 8) -> None:
        put = [Message("T", 0, body, b"TAGS\x01a", HOST, HOST, 0) for body in bodies]
        self.log = bytearray(log_of(*((each, number) for number, each in enumerate(put))))
        self.starts, packed, at = [], b"", 0
        while at < len(self.log):
            size = int.from_bytes(self.log[at : at + 4])
            self.starts.append(at)
            packed += struct.pack(">qiq", at, size, 0)
            at += size
        files = (len(bodies) + room + per_file - 1) // per_file
        self.entries = bytearray(packed.ljust(files * per_file * ENTRY, b"\0"))
        self.words = bounds(0, len(self.log))
        self.window = LogWindow(*self.words)
        if self.log:
            self.window.add(Segment(memoryview(self.log), 0), 4, 0)
        self.queue = MemoryQueue(self.entries, per_file)
        self.pulled = PulledQueue(self.window, b"T", 0)

    def lane(self, count: int = 32, **other: object) -> PullLane:
        settings = {"max_bytes": 1 << 18, "shard": 7, "sends_empty": True, "form": None}
        return PullLane(count, **(settings | other))  # type: ignore[arg-type]

    def pull(self, offset: int, lane: PullLane | None = None) -> bytes | None:
        return (lane or self.lane()).pull(self.pulled, offset, START, FIELDS, ENDING)

    def aim(self, offset: int) -> None:
        self.pulled.aim(self.queue, offset)

    def records(self, first: int, count: int) -> bytes:
        stops = [*self.starts, len(self.log)]
        return bytes(self.log[stops[first] : stops[min(first + count, len(self.starts))]])


def fields_of(reply: bytes | None) -> tuple[dict[str, str], bytes]:
    """The header fields of a reply, and its body."""
    assert reply is not None
    assert reply.startswith(START)
    head, _, body = reply.removeprefix(START).partition(b"\r\n\r\n")
    fields = dict(line.split(": ") for line in head.decode().split("\r\n"))
    assert int(fields["content-length"]) == len(body)
    return fields, body


def test_records_are_sent_with_their_bounds() -> None:
    store = Store([bytes(100 + number) for number in range(10)])
    store.aim(0)
    lane = store.lane(4)
    fields, body = fields_of(store.pull(3, lane))
    assert body == store.records(3, 4)
    assert (lane.messages, lane.size) == (4, len(body))
    assert list(fields.items()) == [
        ("content-type", "application/x-rocketmq-records"),
        ("content-length", str(len(body))),
        ("x-a", "b"),
        ("x-mqstore-status", "FOUND"),
        ("x-mqstore-next", "7"),
        ("x-mqstore-min-offset", "0"),
        ("x-mqstore-max-offset", "10"),
        ("x-mqstore-messages", "4"),
        ("x-mqstore-unreadable", "0"),
        ("x-mqstore-self-checked", "0"),
        ("x-mqstore-shard", "7"),
        ("x-request-id", "1"),
    ]


def test_messages_are_sent_as_json_with_their_bounds() -> None:
    store = Store([b"a", b"b", b"c"])
    store.aim(0)
    form = plain_form(7)
    fields, body = fields_of(store.pull(1, store.lane(form=form)))
    assert list(fields) == ["content-type", "content-length", "x-a", "x-request-id"]
    found = json.loads(body)
    assert [each.pop("body") for each in found["messages"]] == ["b", "c"]
    del found["messages"]
    assert found == {
        "unreadable": [],
        "next": 3,
        "minOffset": 0,
        "maxOffset": 3,
        "status": "FOUND",
        "shard": 7,
    }


def test_the_end_of_a_queue_is_an_empty_reply_unless_the_request_waits() -> None:
    store = Store([b"a", b"b"])
    store.aim(0)
    fields, body = fields_of(store.pull(2))
    assert (fields["x-mqstore-status"], fields["x-mqstore-next"]) == ("OFFSET_OVERFLOW_ONE", "2")
    assert body == b""
    assert store.pull(2, store.lane(sends_empty=False)) is None
    assert store.pull(3) is None


def test_a_queue_without_messages_is_left_to_the_general_way() -> None:
    store = Store([])
    store.aim(0)
    assert store.pull(0) is None


def test_a_queue_is_read_only_after_it_was_aimed_at() -> None:
    store = Store([b"a"] * 6, per_file=4)
    assert store.pull(0) is None
    store.aim(0)
    assert fields_of(store.pull(0, store.lane(4)))[0]["x-mqstore-max-offset"] == "6"
    store.pulled.forget()
    assert store.pull(0) is None


def test_readers_at_different_places_of_a_queue_keep_their_files() -> None:
    store = Store([b"a"] * 11, per_file=4)
    for offset in (0, 5):
        store.aim(offset)
    del store.queue.looked_at[:]
    assert [fields_of(store.pull(at, store.lane(2)))[1] for at in (0, 5)] == [
        store.records(0, 2),
        store.records(5, 2),
    ]
    assert store.queue.looked_at == []


def test_a_pull_ends_with_the_file_of_its_queue() -> None:
    store = Store([b"a"] * 11, per_file=4)
    store.aim(0)
    assert store.pull(2, store.lane(4)) is None, "the slow path reads over the end of a file"
    assert fields_of(store.pull(2, store.lane(2)))[1] == store.records(2, 2)


def test_messages_that_arrive_move_the_end_once_they_are_dispatched() -> None:
    store = Store([b"a"] * 4)
    dispatched, last = store.words[3], bytes(store.entries[60:80])
    store.entries[60:80] = bytes(20)
    dispatched.value = store.starts[3]
    store.aim(0)
    assert fields_of(store.pull(0))[0]["x-mqstore-max-offset"] == "3"
    store.entries[60:80] = last
    assert fields_of(store.pull(0))[0]["x-mqstore-max-offset"] == "3"
    dispatched.value = len(store.log)
    fields, body = fields_of(store.pull(0))
    assert (fields["x-mqstore-max-offset"], body) == ("4", bytes(store.log))


def test_entries_that_are_not_dispatched_are_behind_the_end_from_the_first_look_on() -> None:
    store = Store([b"a"] * 4)
    store.words[3].value = store.starts[2]
    store.aim(0)
    fields, body = fields_of(store.pull(0))
    assert (fields["x-mqstore-max-offset"], body) == ("2", store.records(0, 2))


@pytest.mark.parametrize("word", [0, 5], ids=["epoch", "changing"])
def test_nothing_is_read_after_the_store_changed(word: int) -> None:
    store = Store([b"a"] * 4)
    store.aim(0)
    store.words[word].value = 1
    assert store.pull(0) is None
    store.window.renew()
    assert store.pull(0) is None


@given(st.integers(0, 9))
def test_the_start_follows_the_minimum_of_the_log(first: int) -> None:
    store = Store([b"a"] * 10)
    store.aim(0)
    del store.queue.looked_at[:]
    store.words[1].value = store.starts[first] - (first > 0)
    fields, body = fields_of(store.pull(first))
    assert (fields["x-mqstore-min-offset"], body) == (str(first), store.records(first, 10))
    assert first == 0 or store.pull(first - 1) is None
    assert store.queue.looked_at == [], "the deletion of a segment needs no look at the queue"


def test_a_start_in_a_file_that_is_not_held_is_found_by_the_next_aim() -> None:
    store = Store([b"a"] * 15, per_file=4)
    store.aim(12)
    store.words[1].value = store.starts[9]
    assert store.pull(12) is None
    store.queue.min_index = 9
    store.aim(12)
    assert fields_of(store.pull(12))[1] == store.records(12, 3)


def test_files_before_the_first_one_are_released() -> None:
    store = Store([b"a"] * 11, per_file=4)
    for offset in (0, 5):
        store.aim(offset)
    store.pulled.release(4)
    assert store.pull(0) is None
    assert fields_of(store.pull(5, store.lane(2)))[1] == store.records(5, 2)
    store.words[0].value = 1
    store.window.renew()
    store.pulled.release(0)
    store.words[0].value = 0
    store.window.renew()
    assert store.pull(5) is None, "files of another epoch are released"


def test_more_bytes_than_allowed_are_left_to_the_general_way() -> None:
    store = Store([bytes(1_000)] * 4)
    store.aim(0)
    assert store.pull(0, store.lane(3, max_bytes=len(store.records(0, 3)))) is not None
    assert store.pull(0, store.lane(3, max_bytes=len(store.records(0, 3)) - 1)) is None


@pytest.mark.parametrize("count", [0, -1, LANE_COUNT_MAX + 1])
def test_a_lane_has_a_bounded_count(count: int) -> None:
    with pytest.raises(ValueError, match="messages"):
        PullLane(count, max_bytes=1, shard=0, sends_empty=True, form=None)


@given(st.data(), st.integers(0, 12), st.integers(1, 12), st.booleans())
def test_a_reply_has_what_the_window_reads_whatever_changed(
    draw: st.DataObject, offset: int, count: int, is_json: bool
) -> None:
    store = Store([bytes([number]) * (number * 7) for number in range(10)], per_file=5)
    store.aim(offset)
    for changed in draw.draw(st.lists(st.sampled_from([store.entries, store.log]), max_size=2)):
        at = draw.draw(st.integers(0, len(changed) - 1))
        changed[at] ^= 1 << draw.draw(st.integers(0, 7))
    form = plain_form() if is_json else None
    lane = store.lane(count, form=form)
    reply = store.pull(offset, lane)
    if reply is None:
        return
    place = store.queue.block(offset)
    assert place is not None
    where = *place, b"T", 0, offset, lane.messages, 0, 1 << 20
    parts, found, *_ = store.window.slices(*where)
    _, body = fields_of(reply)
    assert (found, sum(map(len, parts))) == (lane.messages, lane.size)
    if form is None:
        assert body == b"".join(parts)
    else:
        assert [each["queueOffset"] for each in json.loads(body)["messages"]] == list(
            range(offset, offset + found)
        )
