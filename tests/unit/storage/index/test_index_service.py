"""Which file a key goes to, what is trusted at open, expiry, and look-ups."""

from __future__ import annotations

import errno
import re
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mqstore.storage.codec.record import Record, decode, scan
from mqstore.storage.errors import StoreFailed
from mqstore.storage.index.file import IndexFile
from mqstore.storage.index.names import name_after
from mqstore.storage.index.service import IndexService
from mqstore.storage.layout import StoreFormat
from mqstore.storage.paths import StorePaths
from mqstore.storage.seams import Seams
from mqstore.storage.system.threads import production_seams
from tests.simulation import SimulatedMachine
from tests.unit.storage.small_store import BORN_MS, V4, V5, SmallLog, SmallStore, small_config

ROLLBACK = 0xC
END = 2**63 - 1


def keyed(count: int, keys: str = "k", **more: str) -> SmallLog:
    log = SmallLog()
    for number in range(count):
        log.put(props={"UNIQ_KEY": f"u{number}", "KEYS": keys, **more}, store_ms=BORN_MS + number)
    return log


def dispatched(root: Path, log: SmallLog) -> SmallStore:
    store = SmallStore(root, log)
    store.dispatch()
    return store


def test_keys_of_a_message_are_indexed_in_order(tmp_path: Path) -> None:
    log = SmallLog(V5)
    log.put(props={"KEYS": " a  b ", "TAGS": "t", "UNIQ_KEY": "u"})
    store = SmallStore(tmp_path, log)

    assert store.index.keys_of(_record(log, 0)) == ["topic#u", "topic#a", "topic#b", "topic#T#t"]


def test_tags_are_indexed_in_5_x_only(tmp_path: Path) -> None:
    for store_format, expected in ((V4, []), (V5, [0])):
        log = SmallLog(store_format)
        log.put(props={"TAGS": "t"})
        store = dispatched(tmp_path / store_format.value, log)
        assert store.index.query("topic", "T#t", 64).offsets == expected


def test_the_keys_of_one_message_may_straddle_two_files(tmp_path: Path) -> None:
    log = keyed(3, "a b")

    store = dispatched(tmp_path, log)

    counts = [file.index_count for file in store.index.files]
    assert counts == [9, 2]
    offset = log.max_offset // 3 * 2
    assert store.index.query("topic", "b", 64).offsets[0] == offset
    assert store.index.files[1].header.begin_physical == offset


def test_a_new_file_carries_the_end_of_the_one_before(tmp_path: Path) -> None:
    log = keyed(4)
    store = dispatched(tmp_path, log)
    (full,) = (file.header for file in store.index.files)

    log.put()
    store.dispatch()

    assert len(store.index.files) == 2
    assert store.index.files[1].header == (
        full.end_ms,
        full.end_ms,
        full.end_physical,
        full.end_physical,
        0,
        0,
    )


def test_a_message_without_keys_makes_the_first_file_as_in_rocketmq(tmp_path: Path) -> None:
    log = SmallLog()
    log.put()

    store = dispatched(tmp_path, log)

    assert store.index_bytes() == [bytes(40 + 7 * 4 + 9 * 20)]


@pytest.mark.parametrize(("store_format", "count"), [(V4, 0), (V5, 1)])
def test_an_empty_file_counts_from_one_after_a_clean_close_of_5_x(
    tmp_path: Path, store_format: StoreFormat, count: int
) -> None:
    log = SmallLog(store_format)
    log.put()
    store = dispatched(tmp_path, log)

    store.close()

    assert struct.unpack_from(">i", store.index_bytes()[0], 36) == (count,)


def test_names_are_local_times_that_never_repeat_or_go_back(tmp_path: Path) -> None:
    store = dispatched(tmp_path, keyed(40))
    names = [file.path.name for file in store.index.files]

    assert len(names) > 5
    assert names == sorted(set(names))
    assert all(re.fullmatch(r"20[0-9]{15}", name) for name in names)


@pytest.mark.parametrize(
    ("last", "following"),
    [
        ("20241231235959999", "20250101000000000"),
        ("20240229120000500", "20240229120000501"),
        ("00000000000000009", "00000000000000010"),
        ("99991231235959999", "99991231235960000"),
    ],
)
def test_a_name_follows_the_last_one_when_the_clock_does_not(last: str, following: str) -> None:
    assert name_after(last) == following


def test_a_full_file_moves_the_checkpoint_once_it_is_synced(tmp_path: Path) -> None:
    store = dispatched(tmp_path, keyed(5))
    assert store.checkpoint.index_ms == 0

    assert store.index.flush() == 1
    assert store.checkpoint.index_ms == BORN_MS + 3
    assert store.index.flush() == 0


def test_the_checkpoint_stays_while_a_full_file_is_not_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = dispatched(tmp_path, keyed(5))

    def fail(_: IndexFile) -> None:
        raise StoreFailed("the disk failed")

    monkeypatch.setattr(IndexFile, "flush", fail)
    with pytest.raises(StoreFailed):
        store.index.flush()

    assert store.checkpoint.index_ms == 0, "a broker would keep a file that is not on disk"


def test_after_a_crash_files_newer_than_the_checkpoint_are_dropped_and_made_again(
    tmp_path: Path,
) -> None:
    log = keyed(10)
    store = dispatched(tmp_path, log)
    store.index.flush()
    before = store.index_bytes()
    store.checkpoint.index_ms = store.index.files[0].header.end_ms
    store.checkpoint.flush()
    store.close()

    again = SmallStore(tmp_path, log, safe=False)
    dropped = again.index_load.dropped
    assert [left.path for left in dropped] == [file.path for file in store.index.files[1:]]
    assert all("not before the checkpoint" in left.why for left in dropped)
    for left in dropped:
        left.path.unlink()
    again.dispatch()

    assert again.index_bytes() == before
    names = [file.path.name for file in again.index.files]
    assert names == sorted(set(names))
    assert names[1] > dropped[-1].path.name


@pytest.mark.parametrize(("synced", "kept"), [(0, 1), (2, 2)])
def test_behind_a_clock_that_was_set_back_times_vouch_for_no_file(
    tmp_path: Path, synced: int, kept: int
) -> None:
    """Else a file that was never synced would be taken for one that was: its times are earlier."""
    store = dispatched(tmp_path, keyed(16))
    files = [file.header for file in store.index.files]
    assert len(files) == 4
    store.index.close()
    index = IndexService(store.paths, store.config, V4, production_seams())

    found = index.load(
        safe=False,
        index_ms=END,
        synced_end=files[synced].begin_physical,
        back=files[1].begin_physical + 1,
    )

    assert len(index.files) == kept
    assert len(found.dropped) == len(files) - kept


def test_a_time_that_no_file_ends_at_vouches_for_none(tmp_path: Path) -> None:
    """The file that ended then expired, and with it the record of a clock that was set back."""
    store = dispatched(tmp_path, keyed(16))
    ends = [file.header.end_physical for file in store.index.files]
    later = store.index.files[-1].header.end_ms + 3_600_000
    store.index.close()
    index = IndexService(store.paths, store.config, V4, production_seams())

    found = index.load(safe=False, index_ms=later, synced_end=ends[1] + 1)

    assert len(index.files) == 2
    assert len(found.dropped) == len(ends) - 2


def test_an_empty_file_is_not_taken_for_one_that_was_synced(tmp_path: Path) -> None:
    """As a power cut leaves the newest file, whose header never reached the disk."""
    store = dispatched(tmp_path, keyed(16))
    ends = [file.header.end_physical for file in store.index.files]
    newest = store.index.files[-1]
    newest.view[:] = bytes(len(newest.view))
    store.index.close()
    index = IndexService(store.paths, store.config, V4, production_seams())

    found = index.load(safe=False, index_ms=END, synced_end=ends[2] + 1)

    assert [left.path for left in found.dropped] == [newest.path]


def test_after_a_clean_end_all_files_are_kept(tmp_path: Path) -> None:
    log = keyed(10)
    dispatched(tmp_path, log).close()

    assert SmallStore(tmp_path, log).index_load.dropped == []


def test_files_with_items_beyond_the_logs_end_are_dropped(tmp_path: Path) -> None:
    log = keyed(10)
    store = dispatched(tmp_path, log)
    store.close()

    index = IndexService(store.paths, store.config, V4, store.seams)
    end = store.index.files[1].end_physical
    found = index.load(safe=True, log_end=end)

    assert len(index.files) == 1
    assert [left.path for left in found.dropped] == [f.path for f in store.index.files[1:]]


def test_damaged_headers_and_strays_are_named_and_left_alone(tmp_path: Path) -> None:
    log = keyed(3)
    store = dispatched(tmp_path, log)
    store.close()
    path = store.index.files[0].path
    content = bytearray(path.read_bytes())
    content[36:40] = struct.pack(">i", 99)
    path.write_bytes(content)
    (tmp_path / "index/notes").write_text("mine")
    (tmp_path / "index/20240101000000000").write_text("short")

    found = SmallStore(tmp_path, log).index_load

    assert {(left.path.name, left.why) for left in found.dropped} == {
        (path.name, "index count 99 is not in 0..9"),
        ("20240101000000000", "has 5 bytes where maxHashSlotNum 7 and maxIndexNum 9 make 248"),
    }
    assert [left.path.name for left in found.strays] == ["notes"]
    assert path.read_bytes() == content


def test_the_boundary_message_is_not_indexed_twice(tmp_path: Path) -> None:
    log = keyed(7)
    before = dispatched(tmp_path, log)
    before.close()

    again = SmallStore(tmp_path, log, index_position=0)
    again.dispatch()

    assert again.index_bytes() == before.index_bytes()
    assert again.index.put(_record(log, 0)) == 0


def test_a_reader_notices_new_and_removed_files(tmp_path: Path) -> None:
    log = keyed(3)
    store = dispatched(tmp_path, log)
    changes: list[int] = []
    store.index._on_change = lambda: changes.append(1)
    reader = IndexService(store.paths, store.config, V4, store.seams, writable=False)
    reader.load(safe=True)
    for number in range(3, 12):
        log.put(props={"UNIQ_KEY": f"u{number}", "KEYS": "k"})
    store.dispatch()

    assert reader.refresh()
    assert not reader.refresh()
    assert reader.query("topic", "k", 64) == store.index.query("topic", "k", 64)
    assert len(changes) == len(store.index.files) - 1

    assert store.index.delete_before(log.max_offset) == 2
    assert len(changes) == 3
    assert reader.refresh()
    assert len(reader.files) == 1


def test_expiry_never_takes_the_last_file(tmp_path: Path) -> None:
    log = keyed(10)
    store = dispatched(tmp_path, log)
    ends = [file.end_physical for file in store.index.files]

    assert store.index.delete_before(ends[0]) == 0
    assert store.index.delete_before(ends[0] + 1) == 1
    assert store.index.delete_before(END) == len(ends) - 2
    assert len(list((tmp_path / "index").iterdir())) == 1
    assert store.index.query("topic", "k", 64).offsets != []


def test_a_query_is_newest_first_over_files_and_says_when_it_was_cut(tmp_path: Path) -> None:
    log = keyed(20)
    store = dispatched(tmp_path, log)
    everything = _offsets(log)[::-1]

    answer = store.index.query("topic", "k", 64)
    assert answer.offsets == everything
    assert answer.complete
    assert answer.last_update_physical == everything[0]
    cut = store.index.query("topic", "k", 5)
    assert cut.offsets == everything[:5]
    assert not cut.complete


def test_candidates_go_on_below_an_offset(tmp_path: Path) -> None:
    log = keyed(20)
    store = dispatched(tmp_path, log)
    offsets = _offsets(log)

    found = list(store.index.candidates("topic", "k", 0, END, offsets[7]))

    assert found == offsets[:7][::-1]


def test_a_query_by_time_holds_at_least_the_records_of_that_time(tmp_path: Path) -> None:
    log = SmallLog()
    times = [0, 900, 1_100, 5_000, 5_999, 6_000, 70_000, 70_001, 90_000, 90_000]
    offsets = [log.put(props={"KEYS": "k"}, store_ms=BORN_MS + time) for time in times]
    store = dispatched(tmp_path, log)

    for begin in times:
        for end in times:
            found = set(store.index.candidates("topic", "k", BORN_MS + begin, BORN_MS + end, END))
            wanted = {o for o, t in zip(offsets, times, strict=True) if begin <= t <= end}
            assert wanted <= found


def test_no_index_is_an_empty_answer(tmp_path: Path) -> None:
    seams: Seams = production_seams()
    index = IndexService(SmallStore(tmp_path, SmallLog()).paths, small_config(), V4, seams)
    index.load(safe=True)

    answer = index.query("topic", "k", 64)

    assert (answer.offsets, answer.complete, answer.files) == ([], True, 0)
    assert (index.is_empty, index.end_physical) == (True, 0)


def _offsets(log: SmallLog) -> list[int]:
    return [
        item.physical_offset
        for number, segment in enumerate(log.segments)
        for item in scan(memoryview(segment), 0, log.wrote[number], number * len(segment))
        if isinstance(item, Record)
    ]


def _record(log: SmallLog, offset: int) -> Record:
    place = log.view_from(offset)
    assert place is not None
    view, at, end = place
    return decode(view, at, end, physical_offset=offset)


class Interrupted(tuple[IndexFile, ...]):
    """When the first two are to go, another thread has its turn, if nothing holds it back."""

    turn: Callable[[], None]

    def __getitem__(self, index: Any) -> Any:
        if index == slice(2, None):
            self.turn()
        return super().__getitem__(index)


def test_files_that_are_added_while_others_go_are_not_lost(tmp_path: Path) -> None:
    """The dispatcher rolls while retention deletes."""
    log = keyed(12)
    store = dispatched(tmp_path, log)
    adding = threading.Thread(target=store.dispatch)
    for number in range(12, 24):
        log.put(props={"UNIQ_KEY": f"u{number}", "KEYS": "k"})

    def turn() -> None:
        adding.start()
        adding.join(0.2)

    files = Interrupted(store.index.files)
    files.turn = turn
    store.index.files = files
    store.index.delete_before(files[2].end_physical)
    adding.join()
    names = [file.path.name for file in store.index.files]
    assert len(names) > 2
    assert names == sorted(path.name for path in store.paths.index.iterdir())


def test_a_file_that_could_be_neither_made_nor_removed_is_gone_before_the_next_is_made() -> None:
    machine = SimulatedMachine(1)
    paths = StorePaths(Path("/store"))
    for directory in (paths.index, paths.queue_staging):
        machine.disk.make_directories(directory)
    index = IndexService(paths, small_config(), V4, machine.seams)
    for operation in ("map", "unlink"):
        machine.disk.fail_next(operation, errno.EIO)
    with pytest.raises(OSError, match="Input/output error"):
        index.ensure_file()
    assert len(machine.disk.list(paths.index)) == 1
    machine.disk.clock.step(-1_000)

    made = index.ensure_file()

    assert machine.disk.list(paths.index) == [made.path.name]
