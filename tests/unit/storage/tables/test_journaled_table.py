"""Config tables whose changes are durable before their file is written."""

from __future__ import annotations

import gc
import math
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from mqstore.storage.admin.table_saves import (
    BYTES_PER_S,
    PAUSE_MAX_S,
    PAUSE_MIN_S,
    TableSaves,
)
from mqstore.storage.layout import StoreFormat
from mqstore.storage.paths import StorePaths
from mqstore.storage.seams import Seams
from mqstore.storage.system.posix_files import PosixFileSystem
from mqstore.storage.system.threads import production_seams
from mqstore.storage.tables import java_json, journaled_table
from mqstore.storage.tables.config_tables import TopicConfig, TopicTable
from mqstore.storage.tables.consumer_filters import ConsumerFilters, FilterData
from mqstore.storage.tables.followed_table import FollowedTable
from tests.long_runs import examples
from tests.unit.storage.stores import open_store

V4, V5 = StoreFormat.V4_9, StoreFormat.V5_X
LONG_AGO_NS = 1_700_000_000_000_000_000


@pytest.fixture(autouse=True)
def large_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every table is one whose file is not written at each change."""
    monkeypatch.setattr(journaled_table, "SMALL_FILE_MAX", -1)


class CountingFiles(PosixFileSystem):
    """Counts the bytes that are written and read; a test may make the next append fail."""

    def __init__(self) -> None:
        self.written = 0
        self.read_count = 0
        self.before_write: Callable[[], object] = lambda: None
        self.fails = False

    def read(self, path: Path) -> bytes:
        self.read_count += 1
        return super().read(path)

    def write(self, path: Path, data: bytes) -> None:
        self.written += len(data)
        self.before_write()
        super().write(path, data)

    def append(self, path: Path, data: bytes) -> None:
        self.written += len(data)
        if self.fails:
            super().append(path, data[: len(data) // 2])
            raise OSError("the disk fails")
        super().append(path, data)


class Store:
    """A store directory, as its writer and as a reader see it."""

    def __init__(self, root: Path, store_format: StoreFormat = V4) -> None:
        real = production_seams()
        self.files = CountingFiles()
        self.seams = Seams(self.files, real.clock, real.scheduler, real.random)
        self.paths = StorePaths(root)
        self.format = store_format
        self.journal = self.paths.journal_of("topics.json")
        self.file = self.paths.config / "topics.json"
        self.topics = self.load()

    def load(self) -> TopicTable:
        return TopicTable.load(self.paths, self.format, self.seams)

    def create(self, *names: str, queues: int = 4) -> None:
        for name in names:
            self.topics.put(TopicConfig(name, read_queues=queues))
        self.topics.save_changes()

    def remove(self, name: str) -> None:
        self.topics.remove(name)
        self.topics.save_changes()

    def names(self) -> set[str]:
        return self.load().names()

    def settle(self) -> None:
        """Let the file be old enough for a reader to rely on its time."""
        os.utime(self.file, ns=(0, LONG_AGO_NS))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


def test_a_change_costs_the_same_however_large_the_table_is(store: Store) -> None:
    costs = []
    for number in range(1000, 3000):
        before = store.files.written
        store.create(f"topic-{number}")
        costs.append(store.files.written - before)
    assert max(costs) - min(costs) <= 4, "the digits of the counter"
    assert max(costs) < 400


def test_changes_of_several_callers_are_one_append(store: Store) -> None:
    store.topics.put(TopicConfig("a"))
    store.topics.put(TopicConfig("b"))
    store.topics.save_changes()
    before = store.files.written
    store.topics.save_changes()
    assert (store.names(), store.files.written) == ({"a", "b"}, before)


@pytest.mark.parametrize("store_format", [V4, V5])
def test_an_opening_finds_all_changes(tmp_path: Path, store_format: StoreFormat) -> None:
    store = Store(tmp_path, store_format)
    store.create("a", "b")
    store.topics.save()
    store.create("b", queues=9)
    store.create("c", "日本")
    store.remove("a")
    loaded = store.load()
    assert loaded.all() == store.topics.all()
    assert loaded.data["dataVersion"] == store.topics.data["dataVersion"]
    assert loaded.text() == store.topics.text()


def test_saving_empties_the_journal(store: Store) -> None:
    def state() -> tuple[bool, bool, bool]:
        return store.topics.is_saved, store.file.exists(), store.journal.exists()

    store.create("a")
    assert state() == (False, False, True)
    store.topics.save()
    assert state() == (True, True, False)
    assert '"a"' in store.file.read_text()


def test_changes_made_during_a_save_stay_in_the_journal(store: Store) -> None:
    store.create("a")
    later = iter(["b", "c"])

    def change() -> None:
        for name in later:
            store.create(name)

    store.files.before_write = change
    store.topics.save()
    assert '"b"' not in store.file.read_text()
    assert not store.topics.is_saved
    assert store.names() == {"a", "b", "c"}


def test_a_torn_end_is_left_out_and_nothing_is_appended_to_it(store: Store) -> None:
    store.create("a")
    with store.journal.open("ab") as file:
        file.write(b"0000")
    store.topics = store.load()
    assert (store.topics.problem, store.topics.is_saved) == (None, False)
    store.create("b")
    assert store.topics.is_saved
    assert store.names() == {"a", "b"}


def test_a_damaged_change_is_reported_and_the_others_count(store: Store) -> None:
    store.create("a")
    store.create("b")
    lines = store.journal.read_bytes()
    store.journal.write_bytes(lines.replace(b'"a"', b'"x"', 1))
    loaded = store.load()
    assert loaded.names() == {"b"}
    assert loaded.problem == "1 changes of topics.json are damaged in its journal"


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b'{"name":1}', b'{"name":"a","value":7}'])
def test_sealed_nonsense_is_damage(store: Store, text: bytes) -> None:
    write_sealed(store, text)
    assert store.load().problem is not None


def test_sealed_json_that_is_nested_too_deep_is_damage(store: Store) -> None:
    write_sealed(store, b"[" * 100_000)
    gc.collect()  # a finalizer of an earlier test would fail in the deepest call
    assert store.load().problem is not None


def write_sealed(store: Store, text: bytes) -> None:
    store.paths.ours.mkdir()
    store.journal.write_bytes(b"%08x %s\n" % (crc32c(text), text))


def test_a_failed_append_is_made_up_for_by_the_file(store: Store) -> None:
    store.create("a")
    store.files.fails = True
    store.create("b")
    assert store.topics.is_saved
    assert store.names() == {"a", "b"}
    store.files.fails = False
    store.create("c")
    assert store.names() == {"a", "b", "c"}


def test_a_change_that_no_file_takes_is_an_error_until_one_does(store: Store) -> None:
    store.create("a")

    def fail() -> None:
        raise OSError("the disk fails")

    store.files.fails, store.files.before_write = True, fail
    for name in ("b", "c"):
        with pytest.raises(OSError, match="the disk fails"):
            store.create(name)
    store.files.fails, store.files.before_write = False, lambda: None
    store.create("d")
    assert store.names() == {"a", "b", "c", "d"}


def test_what_a_broker_had_since_is_not_changed_by_the_journal(store: Store) -> None:
    store.create("kept", "changed", "deleted")
    store.topics.save()
    store.create("changed", queues=9)
    store.create("deleted", queues=9)
    store.create("new")
    store.create("new", queues=8)
    store.create("passing")
    store.remove("passing")
    broker = TopicTable.load(store.paths, V4, production_seams())
    text = store.file.read_text()
    store.file.write_text(text.replace('"deleted"', '"brokers"'))
    assert broker.get("new") is not None

    TopicTable.settle_after_broker(store.paths, V4, store.seams)

    loaded = store.load()
    assert loaded.names() == {"kept", "changed", "brokers", "new"}
    found = {topic.name: topic.read_queues for topic in loaded.all()}
    assert (found["changed"], found["new"]) == (4, 8)


# saves in the background ------------------------------------------------------------------


def test_a_change_wakes_the_saves_once_until_the_file_has_it(store: Store) -> None:
    wakes: list[str] = []
    saves = TableSaves([store.topics], lambda: wakes.append("wake"))
    assert saves.step(0.0) == math.inf
    store.create("a")
    store.create("b")
    assert wakes == ["wake"]
    assert (saves.step(1.0), store.topics.is_saved) == (math.inf, True)
    store.create("c")
    assert wakes == ["wake", "wake"]
    paused = saves.step(1.01), store.topics.is_saved
    assert paused == (1.0 + PAUSE_MIN_S, False), "the pause after the save"
    assert saves.step(1.0 + PAUSE_MIN_S) == math.inf


def test_a_large_table_is_saved_less_often(store: Store) -> None:
    saves = TableSaves([store.topics], lambda: None)
    store.create(*(f"topic-{number}" for number in range(2_000)))
    saves.step(0.0)
    store.create("a")
    pause_s = store.topics.saved_size / BYTES_PER_S
    assert pause_s > PAUSE_MIN_S
    assert saves.step(0.0) == pause_s


def test_a_save_that_fails_is_retried(store: Store) -> None:
    saves = TableSaves([store.topics], lambda: None)
    store.create("a")

    def fail() -> None:
        raise OSError("the disk fails")

    store.files.before_write = fail
    assert saves.step(1.0) == 1.0 + PAUSE_MAX_S
    store.files.before_write = lambda: None
    assert saves.step(1.0 + PAUSE_MAX_S) == math.inf


def test_a_failed_append_wakes_the_saves_too(store: Store) -> None:
    wakes: list[str] = []
    TableSaves([store.topics], lambda: wakes.append("wake"))

    def fail() -> None:
        raise OSError("the disk fails")

    store.files.fails, store.files.before_write = True, fail
    with pytest.raises(OSError, match="the disk fails"):
        store.create("a")
    assert wakes == ["wake"]


# readers ----------------------------------------------------------------------------------


def test_a_reader_sees_each_change_and_reads_only_its_line(store: Store) -> None:
    store.create("a")
    store.topics.save()
    store.settle()
    followed = FollowedTable(TopicTable, store.paths, store.seams)
    assert followed.now().table.names() == {"a"}
    reads = store.files.read_count
    for number in range(10):
        store.create(f"t{number}")
        assert followed.now().table.get(f"t{number}") is not None
    store.remove("t0")
    assert followed.now().table.get("t0") is None
    assert store.files.read_count == reads, "a file was read whole"


def test_a_reader_sees_changes_after_the_journal_was_emptied(store: Store) -> None:
    followed = FollowedTable(TopicTable, store.paths, store.seams)
    for number in range(6):
        store.create(f"a{number}")
        assert f"a{number}" in followed.now().table.names()
        store.topics.save()
        store.settle()
        store.create(f"b{number}")
        store.create(f"c{number}")
        assert {f"a{number}", f"b{number}", f"c{number}"} <= followed.now().table.names()


def test_a_reader_waits_for_the_end_of_a_line(store: Store) -> None:
    store.create("a")
    store.topics.save()
    store.settle()
    followed = FollowedTable(TopicTable, store.paths, store.seams)
    assert followed.now().table.names() == {"a"}
    store.create("b")
    line = store.journal.read_bytes()
    store.journal.write_bytes(line[:20])
    assert followed.now().table.names() == {"a"}
    store.journal.write_bytes(line)
    assert followed.now().table.names() == {"a", "b"}


# text -------------------------------------------------------------------------------------

NAMES = st.sampled_from(["a", "b", "c", 'quote"', "日本", "\u2028"])


@settings(max_examples=examples(50))
@given(
    changes=st.lists(st.tuples(NAMES, st.integers(0, 3))), store_format=st.sampled_from([V4, V5])
)
def test_the_text_is_the_one_printed_at_once(
    changes: list[tuple[str, int]], store_format: StoreFormat
) -> None:
    table = TopicTable.empty(StorePaths(Path("/none")), store_format, production_seams())
    for name, queues in changes:
        if queues:
            table.put(TopicConfig(name, read_queues=queues))
        elif table.get(name) is not None:
            table.remove(name)
        assert table.text() == java_json.dump(table._tree_to_save(), store_format)


def test_dead_subscriptions_are_those_that_were_removed(store: Store) -> None:
    table = ConsumerFilters.load(store.paths, V4, store.seams)
    for group, dead_ms in (("g", 0), ("h", 5), ("i", 5)):
        table.put(FilterData("T", group, "a = 1", "SQL92", 1, born_ms=3, dead_ms=dead_ms))
    table.put(FilterData("T", "i", "a = 1", "SQL92", 2, born_ms=6))
    assert [each.group for each in table.dead()] == ["h"]
    table.save_changes()
    loaded = ConsumerFilters.load(store.paths, V4, store.seams)
    assert [each.group for each in loaded.dead()] == ["h"]
    loaded.remove("T", "h")
    assert loaded.dead() == []


def test_a_small_file_has_a_change_at_its_return(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    with open_store(tmp_path / "store") as store:
        store.create_topic("made", queues=3)
        on_disk = (tmp_path / "store" / "config" / "topics.json").read_text()
        assert '"made"' in on_disk


def test_each_change_is_saved_once_and_the_backup_has_the_content_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    root = tmp_path / "store"
    with open_store(root) as store:
        changes: dict[str, Callable[[int], object]] = {
            "topics.json": lambda n: store.create_topic(f"made{n}", queues=3),
            "subscriptionGroup.json": lambda n: store.groups.put(f"g{n}", lambda each: each),
            "consumerFilter.json": lambda n: store.subscriptions.put(f"g{n}", "made0", "a > 5"),
        }
        tables = store._parts.tables
        for table in (tables.topics, tables.groups, tables.filters):
            table.on_unsaved = table.save  # a service that is as fast as the change
        for name, change in changes.items():
            file, backup = root / "config" / name, root / "config" / f"{name}.bak"
            change(0)
            for number in range(1, 20):
                before = file.read_bytes()
                change(number)
                assert backup.read_bytes() == before != file.read_bytes()
            for table in (tables.topics, tables.groups, tables.filters):
                table.save()
            assert backup.read_bytes() == before
    for name in changes:
        texts = [(root / "config" / each).read_text() for each in (name, f"{name}.bak")]
        assert "g19" in texts[0] or "made19" in texts[0]
        assert "g19" not in texts[1] and "made19" not in texts[1]
