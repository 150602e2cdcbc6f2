"""Slot and item counts are found from the items of index files, or not at all; never wrong ones."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqstore.storage._kernel import index_put
from mqstore.storage.config import StoreConfig
from mqstore.storage.index import sizes as index_sizes
from mqstore.storage.index.file import file_size
from mqstore.storage.index.sizes import IndexSizes
from mqstore.storage.system.posix_files import PosixFileSystem
from mqstore.storage.system.threads import production_seams
from mqstore.storage.verify.index_check import IndexCheck
from mqstore.storage.verify.store_at_rest import StoreAtRest
from tests.long_runs import examples
from tests.unit.storage.stores import CONFIG, open_store, put_some

FILES = PosixFileSystem()
NOTHING_GIVEN = StoreConfig()


def written(path: Path, slots: int, index_num: int, items: int, *, seed: int = 1) -> Path:
    """An index file as both implementations write it."""
    dice = random.Random(seed)
    data = bytearray(file_size(slots, index_num))
    offset = dice.choice([0, 1 << 40])
    for number in range(items):
        offset += dice.choice([0, 0, 256, 1 << 20])
        key = dice.choice([0 if offset else 1, 7, 2**31 - 1, dice.randrange(2**31)])
        assert index_put(memoryview(data), slots, index_num, key, offset, 10**12 + 100 * number)
    path.write_bytes(data)
    return path


def found(*paths: Path) -> tuple[int, int] | None:
    sizes = index_sizes.find(FILES, paths)
    return None if sizes is None else (sizes.slots, sizes.index_num)


def test_42040_bytes_are_500_slots_and_2000_items(tmp_path: Path) -> None:
    path = written(tmp_path / "1", 500, 2000, 10)
    assert path.stat().st_size == 42040
    assert found(path) == (500, 2000)


@settings(max_examples=examples(200), deadline=None)
@given(
    slots=st.integers(1, 3000),
    index_num=st.integers(3, 800),
    part=st.floats(0, 1),
    seed=st.integers(0, 2**32),
)
def test_one_item_or_more_say_which_counts_a_file_has(
    tmp_path_factory: pytest.TempPathFactory, slots: int, index_num: int, part: float, seed: int
) -> None:
    items = 1 + int(part * (index_num - 2))
    path = tmp_path_factory.getbasetemp() / "index"
    assert found(written(path, slots, index_num, items, seed=seed)) == (slots, index_num)


def test_counts_of_equal_file_length_are_distinguished(tmp_path: Path) -> None:
    paths = [
        written(tmp_path / str(number), 500 - 5 * number, 2000 + number, 300) for number in range(4)
    ]
    assert len({path.stat().st_size for path in paths}) == 1
    for number, path in enumerate(paths):
        assert found(path) == (500 - 5 * number, 2000 + number)
    assert found(*paths) is None


def test_what_is_no_evidence_says_nothing(tmp_path: Path) -> None:
    empty = written(tmp_path / "1", 500, 2000, 0)
    behind = written(tmp_path / "3", 500, 2000, 300)
    data = bytearray(behind.read_bytes())
    data[-1] = 1
    behind.write_bytes(data)
    (tmp_path / "4").write_bytes(b"")
    (tmp_path / "5").write_bytes(bytes(random.Random(1).randbytes(42040)))
    assert found(*sorted(tmp_path.iterdir())) is None
    assert found(empty, behind, written(tmp_path / "6", 500, 2000, 2)) == (500, 2000)


def test_a_file_that_was_cut_short_does_not_speak_against_a_whole_one(tmp_path: Path) -> None:
    cut = written(tmp_path / "1", 500, 2000, 300)
    cut.write_bytes(cut.read_bytes()[:30_000])
    assert found(cut, written(tmp_path / "2", 500, 2000, 2)) == (500, 2000)


def broker_store(root: Path, items: int) -> Path:
    """As a broker with maxHashSlotNum=100 and maxIndexNum=400 leaves one."""
    with open_store(root) as store:
        put_some(store, items)
        store.wait_for_index()
    shutil.rmtree(root / "mqstore")
    return root


def test_a_brokers_store_with_its_own_counts_is_opened_without_naming_them(tmp_path: Path) -> None:
    root = broker_store(tmp_path / "store", 300)
    due = [path.read_bytes() for path in sorted((root / "index").iterdir())]
    looked = StoreAtRest.open(root, NOTHING_GIVEN, production_seams(), FILES, lambda *_: None)
    assert IndexCheck(looked).file_count == len(due) == 2
    wrong = StoreConfig(max_hash_slot_num=95, max_index_num=401)  # of the same length
    with open_store(root, wrong) as store:
        sizes = IndexSizes(store.config.max_hash_slot_num, store.config.max_index_num)
        assert sizes == IndexSizes(CONFIG.max_hash_slot_num, CONFIG.max_index_num)
        assert len(store.index.query("T", "k5", 10).offsets) == 1
    assert [path.read_bytes() for path in sorted((root / "index").iterdir())] == due


def test_where_no_item_shows_the_counts_files_of_another_length_are_made_again(
    tmp_path: Path,
) -> None:
    root = broker_store(tmp_path / "store", 1)
    (index,) = (root / "index").iterdir()
    index.write_bytes(bytes(index.stat().st_size))
    with open_store(root, NOTHING_GIVEN) as store:
        (dropped,) = store.recovery.index_files_dropped
        assert dropped == index.name
        store.wait_for_index()
        assert store.lookups.by_key("T", "k0").records
    (made,) = (root / "index").iterdir()
    assert made.stat().st_size == 420_000_040
