"""Every read path while bytes change between its first look at them and its answer.

The kernel's copy hook runs where bytes of a map are copied: there a test does what another process
does at the worst moment.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import pytest

from mqstore.storage._kernel import MessageLane, PullLane, set_copy_hook
from mqstore.storage.errors import StorageError, StoreNotOpen
from mqstore.storage.lookup.answers import Pull, Slices
from mqstore.storage.lookup.message_trace import MessageTraces
from mqstore.storage.lookup.pull_filter import parse_tags
from mqstore.storage.lookup.topic_scan import TopicQuery
from mqstore.storage.message_store import Durability, MessageStore
from mqstore.storage.paths import StorePaths, segment_name
from mqstore.storage.store_reader import StoreReader
from mqstore.storage.system.threads import production_seams
from mqstore.storage.tables.config_tables import ConsumerOffsets, DelayOffsets
from tests.long_runs import few_first
from tests.unit.storage.log_windows import plain_form
from tests.unit.storage.puts import put_message
from tests.unit.storage.stores import CONFIG, abandon, message, open_store

COUNT: Final = 40
MIDDLE: Final = 17
SLOW: Final = CONFIG.model_copy(
    update={
        "flush_interval_commit_log": 600_000,
        "flush_commit_log_thorough_interval": 600_000,
    }
)
"""Nothing is synced but what a sync put syncs."""


class Beside:
    """A reader of ``COUNT`` messages of one queue, beside their writer."""

    def __init__(self, root: Path, store: MessageStore, reader: StoreReader) -> None:
        self.root = root
        self.store = store
        self.reader = reader
        self.records = store.lookups.records("T", 0, 0, COUNT).records
        self.whole = {each.raw for each in self.records}

    def zero(self) -> None:
        """Put zeros in place of all messages, as losing what was not synced does."""
        with (StorePaths(self.root).commit_log / segment_name(0)).open("r+b") as file:
            file.write(bytes(self.store.state.max_offset))

    def recover(self) -> None:
        """Put zeros there as a recovery does."""
        with self.store.state.changing():
            self.zero()

    def recover_and_look(self) -> None:
        """Another thread of the reader looks something up after the recovery."""
        self.recover()
        with suppress(StorageError):
            self.reader.lookups.by_physical_offset(self.records[-1].physical_offset + 1)


def _by_offset(beside: Beside) -> list[bytes]:
    return [beside.reader.lookups.by_physical_offset(beside.records[MIDDLE].physical_offset).raw]


def _slice_at(beside: Beside) -> list[bytes]:
    return [beside.reader.lookups.slice_at(beside.records[MIDDLE].physical_offset)]


def _by_id(beside: Beside) -> list[bytes]:
    return [beside.reader.lookups.by_message_id(beside.records[MIDDLE].offset_message_id).raw]


def _by_unique_key(beside: Beside) -> list[bytes]:
    return [beside.reader.lookups.by_unique_key("T", beside.records[MIDDLE].uniq_key or "").raw]


def _by_key(beside: Beside) -> list[bytes]:
    found = beside.reader.lookups.by_key("T", beside.records[MIDDLE].keys or "")
    return [each.raw for each in found.records]


def _records(beside: Beside) -> list[bytes]:
    return [each.raw for each in beside.reader.lookups.records("T", 0, 0, COUNT).records]


def _slices(beside: Beside) -> list[bytes]:
    parts = beside.reader.lookups.slices("T", 0, 0, COUNT).parts
    return _apart(beside, b"".join(parts))


def _tagged(beside: Beside) -> list[bytes]:
    wanted = parse_tags("a")
    found = beside.reader.pulls.pull("T", 0, 0, count=COUNT, max_bytes=1 << 20, wanted=wanted)
    return [each.raw for each in found.records]


def _tagged_slices(beside: Beside) -> list[bytes]:
    wanted = parse_tags("a")
    found = beside.reader.pulls.slices("T", 0, 0, count=COUNT, max_bytes=1 << 20, wanted=wanted)
    return _apart(beside, b"".join(found.parts))


def _on_the_loop(beside: Beside) -> list[bytes]:
    found = beside.reader.pulls.in_memory(Pull, "T", 0, 0, count=COUNT, max_bytes=1 << 20)
    return [] if found is None else [each.raw for each in found.records]


def _slices_on_the_loop(beside: Beside) -> list[bytes]:
    found = beside.reader.pulls.in_memory(Slices, "T", 0, 0, count=COUNT, max_bytes=1 << 20)
    return [] if found is None else _apart(beside, b"".join(found.parts))


def _in_a_lane(beside: Beside) -> list[bytes]:
    lane = PullLane(COUNT, max_bytes=1 << 20, shard=0, sends_empty=True, form=None)
    beside.reader.queues.aim("T", 0, 0)
    queue = beside.reader.queues.pulled("T", 0)
    reply = None if queue is None else lane.pull(queue, 0, b"", b"", b"\r\n")
    return [] if reply is None else _apart(beside, reply.partition(b"\r\n\r\n")[2])


def _json_in_a_lane(beside: Beside) -> list[bytes]:
    form = plain_form()
    lane = PullLane(COUNT, max_bytes=1 << 20, shard=0, sends_empty=True, form=form)
    beside.reader.queues.aim("T", 0, 0)
    queue = beside.reader.queues.pulled("T", 0)
    reply = None if queue is None else lane.pull(queue, 0, b"", b"", b"\r\n")
    if reply is None:
        return []
    shown = json.loads(reply.partition(b"\r\n\r\n")[2])["messages"]
    return [
        own.raw if own.body.decode() == each["body"] else b"another"
        for own, each in zip(beside.records, shown, strict=True)
    ]


def _by_id_in_a_lane(beside: Beside) -> list[bytes]:
    form = plain_form()
    lane, reader, own = MessageLane(form, max_bytes=1 << 18), beside.reader, beside.records[MIDDLE]
    reader.queues.aim("T", 0, 0)
    message_id = own.offset_message_id.encode()
    reply = lane.find(reader.window, reader.queues, message_id, b"", b"", b"\r\n")
    if reply is None:
        return []
    shown = json.loads(reply.partition(b"\r\n\r\n")[2])
    return [own.raw if own.body.decode() == shown["body"] else b"another"]


def _scan(beside: Beside) -> list[bytes]:
    found = beside.reader.scans.scan(TopicQuery("T"), limit=COUNT, max_bytes=1 << 20)
    return [each.raw for each in found.records]


def _trace(beside: Beside) -> list[bytes]:
    paths = StorePaths(beside.root), beside.store.format, production_seams()
    tables = ConsumerOffsets.load(*paths), DelayOffsets.load(*paths)
    traces = MessageTraces(beside.reader.lookups, beside.reader.places, *tables, lambda: ["T"])
    found = traces.by_unique_key("T", beside.records[MIDDLE].uniq_key or "")
    return [each.record.raw for each in found.copies]


def _apart(beside: Beside, joined: bytes) -> list[bytes]:
    """The records of a slice, then the bytes that are no stored record."""
    found = []
    for each in beside.records:
        if joined.startswith(each.raw):
            found.append(each.raw)
            joined = joined[each.size :]
    return [*found, joined] if joined else found


Look = Callable[[Beside], list[bytes]]
PATHS: Final[tuple[Look, ...]] = (
    _by_offset,
    _slice_at,
    _by_id,
    _by_unique_key,
    _by_key,
    _records,
    _slices,
    _tagged,
    _tagged_slices,
    _on_the_loop,
    _slices_on_the_loop,
    _in_a_lane,
    _json_in_a_lane,
    _by_id_in_a_lane,
    _scan,
    _trace,
)
every_path = pytest.mark.parametrize("look", PATHS, ids=lambda each: each.__name__.strip("_"))
known_and_new = pytest.mark.parametrize("is_known", [True, False], ids=["known", "new"])


@contextmanager
def _opened(root: Path, durability: Durability) -> Iterator[Beside]:
    with open_store(root, SLOW) as store, StoreReader.open(root, production_seams()) as reader:
        for number in range(COUNT):
            put_message(store, message(store, number), durability)
        yield Beside(root, store, reader)
        abandon(store)


@pytest.fixture
def unsynced(tmp_path: Path) -> Iterator[Beside]:
    with _opened(tmp_path, Durability.ASYNC) as found:
        yield found


@pytest.fixture(params=few_first(Durability), ids=lambda each: each.value)
def beside(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Beside]:
    with _opened(tmp_path, request.param) as found:
        yield found


@contextmanager
def _meanwhile(change: Callable[[], None], copies: int) -> Iterator[list[None]]:
    """``change`` once, where bytes are about to be copied after so many copies were; what is done
    as often as copies were made."""
    done: list[None] = []

    def hook() -> None:
        done.append(None)
        if len(done) == copies + 1:
            change()

    set_copy_hook(hook)
    try:
        yield done
    finally:
        set_copy_hook(None)


def _warm(beside: Beside, look: Look, *, is_known: bool) -> None:
    """Have the segments in the kernel's window, or in no cache."""
    beside.reader.lookups.records("T", 0, 0, COUNT)
    assert look(beside)
    if not is_known:
        beside.reader.lookups.forget()


@every_path
@known_and_new
@pytest.mark.parametrize("copies", few_first([MIDDLE, 0], others=pytest.mark.nightly))
def test_no_message_is_answered_that_was_lost_while_it_was_read(
    unsynced: Beside, look: Look, is_known: bool, copies: int
) -> None:
    _warm(unsynced, look, is_known=is_known)
    found: list[bytes] = []
    with _meanwhile(unsynced.zero, copies), suppress(StorageError):
        found = look(unsynced)
    assert set(found) <= unsynced.whole


@every_path
@known_and_new
@pytest.mark.parametrize("copies", few_first([MIDDLE, 0], others=pytest.mark.nightly))
@pytest.mark.parametrize("change", few_first(["recover_and_look", "recover"]))
def test_no_message_is_answered_that_a_recovery_changed_while_it_was_read(
    beside: Beside, look: Look, is_known: bool, copies: int, change: str
) -> None:
    _warm(beside, look, is_known=is_known)
    found: list[bytes] = []
    with _meanwhile(getattr(beside, change), copies) as done, suppress(StorageError):
        found = look(beside)
    assert set(found) <= beside.whole
    assert not found or len(done) <= copies


@every_path
@known_and_new
def test_nothing_is_answered_from_a_store_that_is_being_changed(
    beside: Beside, look: Look, is_known: bool
) -> None:
    _warm(beside, look, is_known=is_known)
    found: list[bytes] = []
    with beside.store.state.changing(), suppress(StoreNotOpen):
        found = look(beside)
    assert found == []
    _warm(beside, look, is_known=True)


def test_a_segment_is_not_listed_or_read_while_the_store_is_being_changed(beside: Beside) -> None:
    segments = beside.reader.segments
    part = segments.part(segment_name(0)) if beside.store.state.flushed_offset else None
    with beside.store.state.changing():
        for look in (segments.all, lambda: segments.part(segment_name(0))):
            with pytest.raises(StoreNotOpen):
                look()
    if part is not None:
        for read in (segments.read, segments.checksums):
            with pytest.raises(StoreNotOpen):
                read(part, 0, part.size)
