"""Whole stores that were left badly: what the next opening makes of them."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mqstore.storage.errors import RecordError, RecordTombstone, StoreDamaged, StoreOfAnother
from mqstore.storage.layout import StoreFormat
from mqstore.storage.message_store import Durability, MessageStore
from mqstore.storage.metadata.quarantine import TOMBSTONE_REASON
from mqstore.storage.recovery.report import PlaceTombstone, RemoveSegment, StartReason
from tests.long_runs import examples, few_first
from tests.unit.storage.puts import put_message
from tests.unit.storage.stores import (
    CONFIG,
    abandon,
    all_bodies,
    bodies,
    message,
    open_store,
    put_some,
)

COUNT = 900
SEGMENT = CONFIG.mapped_file_size_commit_log


@pytest.fixture(scope="module")
def killed_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store whose writer was killed after 900 messages."""
    root = tmp_path_factory.mktemp("killed") / "store"
    store = open_store(root)
    store.create_topic("T", queues=3)
    put_some(store, COUNT)
    abandon(store)
    return root


@pytest.fixture(scope="module")
def closed_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that was closed cleanly after 900 messages."""
    root = tmp_path_factory.mktemp("closed") / "store"
    with open_store(root) as store:
        put_some(store, COUNT)
    return root


@pytest.fixture
def killed(killed_once: Path, tmp_path: Path) -> Path:
    return copy(killed_once, tmp_path / "store")


@pytest.fixture
def closed(closed_once: Path, tmp_path: Path) -> Path:
    return copy(closed_once, tmp_path / "store")


def copy(source: Path, target: Path) -> Path:
    """Copy with modification times, so that no other program seems to have opened it since."""
    shutil.copytree(source, target, copy_function=shutil.copy2)
    return target


def as_left_by_a_broker(root: Path) -> Path:
    shutil.rmtree(root / "mqstore")
    return root


def content(root: Path) -> dict[str, bytes]:
    """The files that RocketMQ knows."""
    found = {}
    for folder in ("commitlog", "consumequeue"):
        for path in (root / folder).rglob("*"):
            if path.is_file():
                found[str(path.relative_to(root))] = path.read_bytes()
    return found


def assert_whole(store: MessageStore, count: int = COUNT) -> None:
    assert bodies(store) == all_bodies(count)
    assert store.dispatcher.behind == 0
    store.wait_for_index()
    for number in (0, count // 2, count - 1):
        assert store.lookups.by_unique_key("T", f"U{number:031d}").body == (
            b"body %d " % number * 10
        )
    placement = put_message(store, message(store, count, queue_id=count % 3))
    assert placement.queue_offset == count // 3


def last_segment(root: Path) -> Path:
    return sorted((root / "commitlog").iterdir())[-1]


def test_a_killed_writer_loses_nothing(killed: Path) -> None:
    with open_store(killed) as store:
        assert store.recovery.plan.path == "abnormal"
        assert store.recovery.plan.cut_bytes == 0
        assert_whole(store)


def test_recovery_after_a_kill_begins_at_the_durable_watermark(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store")
    put_some(store, 400)
    watermark = put_message(store, message(store, 400, queue_id=1), Durability.SYNC).end
    put_some(store, COUNT - 401, start=401)
    flushed = store.state.flushed_offset
    abandon(store)
    with open_store(tmp_path / "store") as store:
        plan = store.recovery.plan
        assert plan.start_reason is StartReason.WATERMARK
        assert plan.start >= flushed >= watermark
        assert_whole(store)


def test_a_store_that_a_broker_opened_since_is_not_trusted(killed: Path) -> None:
    (killed / "lock").write_bytes(b"lock")
    with open_store(killed) as store:
        assert store.recovery.plan.start_reason is StartReason.FIRST_SEGMENT
        assert store.recovery.plan.dispatch_from == 0
        assert_whole(store)


@pytest.mark.parametrize(
    "lost",
    [
        "consumequeue",
        "consumequeue/T/1",
        "index",
        "checkpoint",
        "config",
        "mqstore/state",
        "mqstore/format.json",
        "mqstore/running.json",
        "mqstore/clean-close.json",
        "mqstore",
        "abort",
    ],
)
@pytest.mark.parametrize("shutdown", few_first(["killed", "closed"]))
def test_what_is_missing_is_made_again(
    shutdown: str, lost: str, request: pytest.FixtureRequest
) -> None:
    root: Path = request.getfixturevalue(shutdown)
    path = root / lost
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    with open_store(root) as store:
        assert_whole(store)


@pytest.mark.parametrize("shutdown", ["killed", "closed"])
def test_queues_without_their_last_file_are_rebuilt_in_full(
    shutdown: str, request: pytest.FixtureRequest
) -> None:
    root: Path = request.getfixturevalue(shutdown)
    before = content(root)
    for queue_id in range(3):
        sorted((root / "consumequeue" / "T" / str(queue_id)).iterdir())[-1].unlink()
    with open_store(root):
        pass
    assert content(root) == before


def test_rebuilt_queues_have_the_bytes_of_the_first_ones(killed: Path) -> None:
    before = content(killed)
    shutil.rmtree(killed / "consumequeue")
    with open_store(killed):
        pass
    assert content(killed) == before


def test_a_broker_that_closed_without_queues_leaves_a_store_that_opens_in_full(
    closed: Path,
) -> None:
    shutil.rmtree(as_left_by_a_broker(closed) / "consumequeue")
    with open_store(closed) as store:
        assert store.recovery.plan.start_reason is StartReason.LAST_THREE
        assert_whole(store)


@pytest.mark.parametrize("shutdown", ["killed", "closed"])
def test_segments_get_no_younger_by_a_recovery(
    shutdown: str, request: pytest.FixtureRequest
) -> None:
    """Retention goes by their age; what is not known to be on disk is only stored again."""
    root = as_left_by_a_broker(request.getfixturevalue(shutdown))
    names = sorted(path.name for path in (root / "commitlog").iterdir())[:-2]
    for name in names:
        os.utime(root / "commitlog" / name, (1_700_000_000, 1_700_000_000))
    with open_store(root) as store:
        assert any(action.kind == "rewrite-range" for action in store.recovery.plan.actions)
        ages = [segment.modified_ms for segment in store.segments() if segment.name in names]
    assert ages == [1_700_000_000_000] * len(names)


@pytest.mark.parametrize("shutdown", ["killed", "closed"])
def test_recovering_twice_changes_nothing_more(
    shutdown: str, request: pytest.FixtureRequest
) -> None:
    root = as_left_by_a_broker(request.getfixturevalue(shutdown))
    with last_segment(root).open("r+b") as segment:
        segment.seek(SEGMENT - 1000)
        segment.write(b"garbage")
    with open_store(root) as store:
        assert store.recovery.plan.cut_bytes > 0
    first = content(root)
    (root / "lock").write_bytes(b"lock")
    with open_store(root) as store:
        assert store.recovery.plan.cut_bytes == 0
        assert store.recovery.plan.max_offset > 0
    assert content(root) == first


def test_what_is_cut_is_kept_and_then_zeroed(killed: Path) -> None:
    as_left_by_a_broker(killed)
    path = last_segment(killed)
    data = bytearray(path.read_bytes())
    with open_store(killed, in_place=False, services=False) as looked:
        end = looked.log.max_offset - int(path.name)
    data[end : end + 64] = b"\xee" * 64
    path.write_bytes(data)
    with open_store(killed) as store:
        assert store.recovery.plan.cut_bytes == 64
        kept = [entry for entry in store._parts.quarantine.entries() if entry.length == 64]
        assert store._parts.quarantine.data(kept[0].name).read_bytes() == b"\xee" * 64
        assert kept[0].source == f"commitlog/{path.name}"
        assert_whole(store)
    assert path.read_bytes()[end + 500 :].strip(b"\0") == b""


@settings(
    max_examples=examples(25),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_a_torn_tail_costs_the_torn_records_only(
    data: st.DataObject, killed_once: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = as_left_by_a_broker(copy(killed_once, tmp_path_factory.mktemp("torn") / "store"))
    with open_store(root, in_place=False, services=False) as looked:
        end = looked.log.max_offset
        offsets = _record_offsets(looked, 4)
    path = last_segment(root)
    base = int(path.name)
    first = max(base, offsets[0])
    torn_from = data.draw(st.integers(first + 1, end - 1), label="torn from")
    content = bytearray(path.read_bytes())
    content[torn_from - base : end - base] = bytes(end - torn_from)
    path.write_bytes(content)
    lost = sum(1 for offset in [*offsets, end][1:] if offset > torn_from)
    with open_store(root) as store:
        assert bodies(store) == all_bodies(COUNT - lost)
        assert store.log.max_offset == offsets[len(offsets) - lost]
        number = COUNT - lost
        placement = put_message(store, message(store, number, queue_id=number % 3))
        assert placement.queue_offset == number // 3


def _record_offsets(store: MessageStore, count: int) -> list[int]:
    """Physical offsets of the last records."""
    found = []
    for queue in store.queues.all():
        entries = queue.entries(queue.max_index - count, queue.max_index)
        found += [entry.physical_offset for _, entry in entries]
    return sorted(found)[-count:]


@pytest.mark.parametrize("at", [1, 4, 30, 100])
def test_a_rotten_record_in_the_middle_costs_one_record(killed: Path, at: int) -> None:
    as_left_by_a_broker(killed)
    with open_store(killed, in_place=False, services=False) as looked:
        queue = looked.queues.get("T", 1)
        assert queue is not None
        entry = queue.entry(100)
        assert entry is not None
    path = killed / "commitlog" / f"{entry.physical_offset // SEGMENT * SEGMENT:020d}"
    data = bytearray(path.read_bytes())
    data[entry.physical_offset % SEGMENT + at] ^= 0xFF
    path.write_bytes(data)
    whole = data[entry.physical_offset % SEGMENT :][: entry.size]
    with open_store(killed) as store:
        plan = store.recovery.plan
        assert (plan.damaged_count, plan.cut_bytes) == (1, 0)
        assert plan.damaged[0].offset == entry.physical_offset
        kept = [e for e in store._parts.quarantine.entries() if e.reason == TOMBSTONE_REASON]
        assert [store._parts.quarantine.data(e.name).read_bytes() for e in kept] == [whole]
        with pytest.raises(RecordTombstone) as lost:
            store.lookups.by_physical_offset(entry.physical_offset)
        assert (lost.value.topic, lost.value.queue_id, lost.value.queue_offset) == ("T", 1, 100)
        pull = store.lookups.records("T", 1, 99, count=3)
        assert [record.queue_offset for record in pull.records] == [99, 101]
        assert [each.queue_offset for each in pull.unreadable] == [100]
        queue = store.queues.get("T", 1)
        assert queue is not None
        assert queue.max_index == COUNT // 3
        assert put_message(store, message(store, 0, queue_id=1)).queue_offset == COUNT // 3


@pytest.mark.parametrize("rotten", [b"\xde\xad\xbe\xef", bytes(4)])
@pytest.mark.parametrize("at", [0, 4])
def test_records_that_no_queue_names_are_found_behind_a_rotten_one(
    killed: Path, rotten: bytes, at: int
) -> None:
    as_left_by_a_broker(killed)
    with open_store(killed, in_place=False, services=False) as looked:
        queue = looked.queues.get("T", 0)
        assert queue is not None
        entry = queue.entry(100)
        assert entry is not None
    shutil.rmtree(killed / "consumequeue" / "T" / "1")
    path = killed / "commitlog" / f"{entry.physical_offset // SEGMENT * SEGMENT:020d}"
    data = bytearray(path.read_bytes())
    position = entry.physical_offset % SEGMENT + at
    data[position : position + 4] = rotten
    path.write_bytes(data)
    with open_store(killed) as store:
        assert readable_bodies(store) == all_bodies(COUNT) - {b"body 300 " * 10}


def test_the_same_damage_is_found_without_any_queue_to_help(killed: Path) -> None:
    as_left_by_a_broker(killed)
    shutil.rmtree(killed / "consumequeue")
    path = sorted((killed / "commitlog").iterdir())[0]
    data = bytearray(path.read_bytes())
    data[20_000:20_100] = bytes(100)
    path.write_bytes(data)
    with open_store(killed) as store:
        assert store.recovery.plan.cut_bytes == 0
        readable = readable_bodies(store)
        assert readable < all_bodies(COUNT)
        assert len(readable) >= COUNT - 2
        assert put_message(store, message(store, 0, queue_id=1)).queue_offset == COUNT // 3


def readable_bodies(store: MessageStore) -> set[bytes]:
    found = set()
    for queue in store.queues.all():
        for _, entry in queue.entries(0, queue.max_index):
            if not entry.is_hole:
                with contextlib.suppress(RecordError):
                    found.add(store.log.record_at(entry.physical_offset).body)
    return found


def test_a_lost_last_segment_ends_the_log_before_it(closed: Path) -> None:
    (as_left_by_a_broker(closed) / "abort").touch()  # else it is refused: test_lost_log
    gone = last_segment(closed)
    end = int(gone.name)
    gone.unlink()
    with open_store(closed) as store:
        assert end - 400 < store.log.max_offset <= end
        assert store.recovery.quarantined
        for queue in store.queues.all():
            entry = queue.entry(queue.max_index - 1)
            assert entry is not None
            assert entry.physical_offset < store.log.max_offset
        put_some(store, 5, start=COUNT)


def test_a_wrong_length_inside_the_log_opens_read_only_and_touches_nothing(closed: Path) -> None:
    as_left_by_a_broker(closed)
    middle = sorted((closed / "commitlog").iterdir())[1]
    middle.write_bytes(middle.read_bytes()[:5000])
    before = content(closed)
    with open_store(closed) as store:
        assert middle.name in (store.read_only_reason or "")
        assert store.status().health == "read_only"
        first = store.queues.get("T", 0)
        assert first is not None
        entry = first.entry(0)
        assert entry is not None
        assert store.log.record_at(entry.physical_offset).body == b"body 0 " * 10
    assert content(closed) == before


def test_a_short_last_segment_is_extended_after_a_copy_was_kept(killed: Path) -> None:
    as_left_by_a_broker(killed)
    path = last_segment(killed)
    short = path.read_bytes()[: SEGMENT // 4]
    path.write_bytes(short)
    with open_store(killed) as store:
        kept = store._parts.quarantine.entries()
        assert store._parts.quarantine.data(kept[0].name).read_bytes() == short
        assert path.stat().st_size == SEGMENT
        assert store.log.max_offset <= int(path.name) + len(short)
        put_some(store, 3)


def test_an_all_zero_segment_made_ahead_is_not_kept_in_quarantine(killed: Path) -> None:
    as_left_by_a_broker(killed)
    following = int(last_segment(killed).name) + SEGMENT
    (killed / "commitlog" / f"{following:020d}").write_bytes(bytes(SEGMENT))
    with open_store(killed) as store:
        removed = [a for a in store.recovery.plan.actions if isinstance(a, RemoveSegment)]
        assert removed
        assert all(action.length == 0 for action in removed)
        assert_whole(store)


def test_a_checkpoint_of_the_wrong_size_is_set_aside(killed: Path) -> None:
    (killed / "checkpoint").write_bytes(b"short")
    with open_store(killed) as store:
        assert any(entry.source == "checkpoint" for entry in store._parts.quarantine.entries())
        assert_whole(store)


def test_stray_files_stay_where_they_are(closed: Path) -> None:
    for folder in ("commitlog", "consumequeue/T", "index"):
        (closed / folder / "notes.txt").write_text("mine")
    (closed / "mqstore" / "clean-close.json").unlink()
    with open_store(closed) as store:
        strays = {Path(stray).parent.name for stray in store.recovery.plan.strays}
        assert strays == {"commitlog", "T", "index"}
        assert_whole(store)
    assert (closed / "commitlog" / "notes.txt").read_text() == "mine"


def test_a_5x_store_recovers_too(tmp_path: Path) -> None:
    root = tmp_path / "store"
    store = open_store(root, format=StoreFormat.V5_X)
    put_some(store, COUNT)
    put_message(store, message(store, COUNT, topic="L" * 128))
    abandon(store)
    with open_store(root) as store:
        assert_whole(store)
        assert bodies(store, topic="L" * 128, queues=1) == {b"body %d " % COUNT * 10}


HALTED_FILES = [
    "checkpoint",
    "mqstore/state",
    "mqstore/format.json",
    "mqstore/running.json",
    "mqstore/clean-close.json",
    "index/20990101000000000",
    "consumequeue/T/1/00000000000000020000",
]


@pytest.mark.parametrize("shutdown", few_first(["killed", "closed"]))
@pytest.mark.parametrize(
    "name, data",
    [
        *((name, data) for name in HALTED_FILES for data in (b"", b"\x07" * 40)),
        ("commitlog/00000000000010485760", b""),
    ],
)
def test_a_file_that_a_halt_left_without_its_bytes_keeps_no_store_shut(
    shutdown: str, name: str, data: bytes, request: pytest.FixtureRequest
) -> None:
    root: Path = request.getfixturevalue(shutdown)
    (root / name).write_bytes(data)
    with open_store(root) as store:
        report = store.recovery
        assert_whole(store)
    assert open_store(root).recovery.plan.start_reason is StartReason.CLEAN_CLOSE
    if data and not name.startswith("mqstore/"):
        assert report.quarantined
    if name in ("checkpoint", "mqstore/state", "mqstore/format.json"):
        assert Path(name).name in " ".join(report.odd)


def test_a_last_segment_of_no_bytes_is_not_there(killed: Path) -> None:
    following = int(last_segment(killed).name) + SEGMENT
    (killed / "commitlog" / f"{following:020d}").write_bytes(b"")
    with open_store(killed) as store:
        assert [a.length for a in store.recovery.plan.actions if isinstance(a, RemoveSegment)] == [
            0
        ]
        assert_whole(store)


@pytest.mark.parametrize("length", [0, 20, 47, 1999, 2020, 4000])
def test_a_queue_file_of_a_wrong_length_gets_the_right_one(killed: Path, length: int) -> None:
    whole = content(killed)
    path = sorted((killed / "consumequeue/T/1").iterdir())[-1]
    path.write_bytes(path.read_bytes().ljust(4000, b"\0")[:length])
    with open_store(killed) as store:
        assert_whole(store)
    assert path.stat().st_size == CONFIG.mapped_file_size_consume_queue
    after = content(killed)
    assert [n for n, data in whole.items() if "consumequeue" in n and after[n] != data] == []


def test_a_format_file_that_cannot_be_read_is_kept_and_the_id_comes_from_the_state(
    killed: Path,
) -> None:
    before = json.loads((killed / "mqstore/format.json").read_text())["storeId"]
    (killed / "mqstore/format.json").write_text('{"half')
    with pytest.raises(StoreOfAnother):
        open_store(killed, store_id="0" * 31 + "1")
    with open_store(killed) as store:
        assert store.store_id == before
        sources = {entry.source for entry in store._parts.quarantine.entries()}
        assert "mqstore/format.json" in sources


def test_a_lost_format_file_that_may_have_named_another_log_is_refused(killed: Path) -> None:
    (killed / "commitlog").rename(killed.parent / "moved-log")
    (killed / "mqstore/format.json").write_text("")
    with pytest.raises(StoreDamaged):
        open_store(killed)


@settings(
    max_examples=examples(15),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_damage_in_the_middle_becomes_tombstones_that_stay(
    data: st.DataObject, killed_once: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = as_left_by_a_broker(copy(killed_once, tmp_path_factory.mktemp("rot") / "store"))
    if data.draw(st.booleans(), label="without queues"):
        shutil.rmtree(root / "consumequeue")
    start = data.draw(st.integers(0, 100_000), label="start")
    length = data.draw(st.integers(1, 3_000), label="length")
    path = root / "commitlog" / f"{start - start % SEGMENT:020d}"
    content = bytearray(path.read_bytes())
    length = min(length, SEGMENT - start % SEGMENT)
    content[start % SEGMENT : start % SEGMENT + length] = data.draw(
        st.sampled_from([bytes(length), b"\xda" * length]), label="bytes"
    )
    path.write_bytes(content)
    with open_store(root) as store:
        assert store.recovery.plan.cut_bytes == 0
        end = store.log.max_offset
        assert readable_bodies(store) >= all_bodies(COUNT) - gone(start, length)
        assert put_message(store, message(store, 0, queue_id=1)).queue_offset == COUNT // 3
    (root / "lock").write_bytes(b"lock")
    (root / "abort").write_bytes(b"")
    with open_store(root) as store:
        assert store.recovery.plan.damaged_count == 0
        assert store.log.max_offset > end


def gone(start: int, length: int) -> set[bytes]:
    """Bodies of the records that a range may have touched: each takes at least 200 bytes."""
    first = start // 260 - 40
    return {b"body %d " % number * 10 for number in range(first, (start + length) // 200 + 2)}


def test_looking_at_damage_changes_nothing(killed: Path) -> None:
    path = sorted((killed / "commitlog").iterdir())[0]
    data = bytearray(path.read_bytes())
    data[20_000:20_100] = bytes(100)
    path.write_bytes(data)
    as_left_by_a_broker(killed)
    before = content(killed)
    for in_place in (False, True):
        with open_store(killed, in_place=in_place, services=False) as store:
            assert store.recovery.plan.damaged_count == 2
            assert not any(isinstance(a, PlaceTombstone) for a in store.recovery.plan.actions)
    assert {n: d for n, d in content(killed).items() if "commitlog" in n} == {
        n: d for n, d in before.items() if "commitlog" in n
    }


def test_a_queue_that_a_note_promises_and_that_was_removed_is_made_again(killed: Path) -> None:
    store = open_store(killed)
    store._parts.running_manifest.step(0.0)
    abandon(store)
    shutil.rmtree(killed / "consumequeue" / "T" / "1")

    with open_store(killed) as again:
        assert again.recovery.plan.dispatch_reason == "queue 1 of T lacks entries"
        assert_whole(again)
