"""Every file that is made again from others, cut, lengthened, zeroed or removed: the store opens by
itself, or one repair mends it, and no message is lost."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from mqstore.storage.codec import properties
from mqstore.storage.errors import DiskRefuses
from mqstore.storage.message_store import MessageStore
from mqstore.storage.paths import segment_name
from mqstore.storage.store_repair import Remedy, StoreRepair
from mqstore.storage.system.threads import production_seams
from tests.simulation.timed_store import small_wheel
from tests.unit.storage.puts import put_message
from tests.unit.storage.store_repair.damages import Patient, healthy
from tests.unit.storage.stores import abandon, all_bodies, bodies, message, open_store, put_some
from tests.unit.storage.test_subscribed_pulls import WITH_UNITS
from tests.unit.untouched import entries_of

RECORDS: Final = 600
TIMED: Final = 5
CONFIG: Final = WITH_UNITS.model_copy(update={"max_index_num": 4_000})
"""One index file, as a store of less than 20 million keys has."""
QUEUE: Final = CONFIG.queue_file_size

wheel = pytest.fixture(autouse=True, scope="module")(small_wheel)


def cut_a_byte(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def cut_in_half(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def empty(path: Path) -> None:
    os.truncate(path, 0)


def add_a_byte(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"x")


def add_a_page(path: Path) -> None:
    os.truncate(path, path.stat().st_size + 4096)


def zero(path: Path) -> None:
    size = path.stat().st_size
    os.truncate(path, 0)
    os.truncate(path, size)


def remove(path: Path) -> None:
    path.unlink()


HURTS: Final = (zero, add_a_byte, cut_a_byte, remove, cut_in_half, empty, add_a_page)

FILES: Final[dict[str, Callable[[Path], Path]]] = {
    "index": lambda root: next((root / "index").iterdir()),
    "first queue file": lambda root: root / "consumequeue/T/0" / segment_name(0),
    "last queue file": lambda root: root / "consumequeue/T/1" / segment_name(QUEUE),
    "queue of a system topic": lambda root: (
        root / "consumequeue/rmq_sys_wheel_timer/0" / segment_name(0)
    ),
    "queue without units": lambda root: root / "consumequeue/Plain/0" / segment_name(0),
    "first bitmaps": lambda root: root / "consumequeue_ext/T/0" / segment_name(0),
    "last bitmaps": lambda root: max((root / "consumequeue_ext/T/0").iterdir()),
    "block checksums": lambda root: root / "mqstore/blocks" / segment_name(0),
    "last block checksums": lambda root: max((root / "mqstore/blocks").iterdir()),
    "timer wheel": lambda root: root / "timerwheel",
    "timer log": lambda root: min((root / "timerlog").iterdir()),
    "timer check": lambda root: root / "config/timercheck",
    "checkpoint": lambda root: root / "checkpoint",
    "state page": lambda root: root / "mqstore/state",
    "format": lambda root: root / "mqstore/format.json",
    "clean close": lambda root: root / "mqstore/clean-close.json",
    "running": lambda root: root / "mqstore/running.json",
    "recovery": lambda root: root / "mqstore/recovery.json",
    "clock": lambda root: root / "mqstore/clock.json",
    "broker.conf": lambda root: root / "mqstore/broker.conf",
}
"""A file of each kind, by name."""
ONLY_CLOSED: Final = frozenset({"clean close"})


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root: Path = tmp_path_factory.mktemp("derived") / "store"
    make(root).close()
    return root


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root: Path = tmp_path_factory.mktemp("derived") / "store"
    store = make(root)
    store._parts.running_manifest.step(0.0)
    abandon(store)
    return root


def make(root: Path) -> MessageStore:
    store = open_store(root, CONFIG, deliver_delayed=False)
    store.create_topic("T", queues=3)
    store.create_topic("Plain", queues=1)
    store.subscriptions.put("g", "T", "a > 5")
    put_some(store, RECORDS)
    for number in range(TIMED):
        made = message(store, RECORDS + number)
        due_ms = production_seams().clock.now_ms() + 3_600_000
        table = properties.decode(made.properties) | {"TIMER_DELIVER_MS": str(due_ms)}
        encoded = properties.encode(table, trailing_separator=False)
        put_message(store, made.replace(properties=encoded))
        put_message(store, message(store, number, topic="Plain"))
    store.delays.timer.step(0.0)
    store.delays.timer.save()
    return store


def cases() -> Iterator[object]:
    """Each file hurt in one way for ``make test``, in all ways for ``make test-ci``."""
    for number, name in enumerate(FILES):
        for hurt in HURTS:
            is_first = hurt is HURTS[number % len(HURTS)]
            marks = () if is_first else pytest.mark.slow
            yield pytest.param(name, hurt, id=f"{name}-{hurt.__name__}", marks=marks)


@pytest.mark.parametrize(("name", "hurt"), list(cases()))
def test_a_closed_store_opens_or_is_mended(
    closed: Path, tmp_path: Path, name: str, hurt: Callable[[Path], None]
) -> None:
    mend(Path(shutil.copytree(closed, tmp_path / "store")), name, hurt)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "hurt"), list(cases()))
def test_a_killed_store_opens_or_is_mended(
    killed: Path, tmp_path: Path, name: str, hurt: Callable[[Path], None]
) -> None:
    if name not in ONLY_CLOSED:
        mend(Path(shutil.copytree(killed, tmp_path / "store")), name, hurt)


def mend(root: Path, name: str, hurt: Callable[[Path], None]) -> None:
    hurt(FILES[name](root))
    beside = Path(shutil.copytree(root, root.with_name("beside")))

    outcome = Patient(beside, CONFIG).repair().run()

    assert (outcome.left, outcome.changes.lost) == ({}, 0)
    require_all(beside)
    open_by_itself(root)
    if Patient(root, CONFIG).repair().plan().is_needed:
        done = Patient(root, CONFIG).repair().run()
        assert (done.left, done.changes.lost) == ({}, 0)
    require_all(root)


def open_by_itself(root: Path) -> None:
    """The writer opens again after the disk refused."""
    try:
        open_store(root, CONFIG, create=False, deliver_delayed=False).close()
    except DiskRefuses:
        open_store(root, CONFIG, create=False, deliver_delayed=False).close()


def require_all(root: Path) -> None:
    with open_store(root, CONFIG, create=False, deliver_delayed=False) as store:
        assert store.read_only_reason is None
        assert bodies(store) == all_bodies(RECORDS)
        assert bodies(store, topic="Plain", queues=1) == all_bodies(TIMED)
        store.wait_for_index()
        for number in range(0, RECORDS, 50):
            (found,) = store.lookups.by_key("T", f"k{number}").records
            assert found.body == b"body %d " % number * 10
        store.delays.timer.step(0.0)
        assert store.delays.timer.status().pending == TIMED
    healthy(Patient(root, CONFIG))


# the index ----------------------------------------------------------------------------------


@pytest.mark.parametrize("hurt", HURTS, ids=lambda each: each.__name__)
def test_an_opening_makes_a_damaged_index_again(
    closed: Path, tmp_path: Path, hurt: Callable[[Path], None]
) -> None:
    root = Path(shutil.copytree(closed, tmp_path / "store"))
    hurt(FILES["index"](root))

    with open_store(root, CONFIG, deliver_delayed=False) as store:
        store.wait_for_index()
        assert len(store.lookups.by_key("T", "k7").records) == 1

    healthy(Patient(root, CONFIG))


@pytest.mark.parametrize("hurt", HURTS, ids=lambda each: each.__name__)
@pytest.mark.parametrize("number", [0, 1, -1])
def test_an_index_has_no_hole_where_a_file_was_damaged(
    tmp_path: Path, number: int, hurt: Callable[[Path], None]
) -> None:
    """The messages of a file in the middle are not indexed behind those of the files after it."""
    root = tmp_path / "store"
    config = CONFIG.model_copy(update={"max_index_num": 300})
    with open_store(root, config) as store:
        store.create_topic("T", queues=3)
        put_some(store, RECORDS)
    files = sorted((root / "index").iterdir())
    assert len(files) > 3
    hurt(files[number])

    with open_store(root, config) as store:
        store.wait_for_index()
        for key in range(0, RECORDS, 7):
            assert len(store.lookups.by_key("T", f"k{key}").records) == 1, key

    healthy(Patient(root, config))


def test_a_rebuild_of_the_index_begins_with_a_file_of_a_wrong_length(
    closed: Path, tmp_path: Path
) -> None:
    root = Path(shutil.copytree(closed, tmp_path / "store"))
    add_a_byte(FILES["index"](root))
    remakes = frozenset({Remedy.REMAKE_INDEX})

    outcome = StoreRepair(root, CONFIG, production_seams(), lambda *_: None, remakes).run()

    assert not outcome.left
    healthy(Patient(root, CONFIG))


def test_a_look_at_a_damaged_index_changes_nothing(closed: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(closed, tmp_path / "store"))
    add_a_byte(FILES["index"](root))
    before = entries_of(root)

    found = {each.what for each in Patient(root, CONFIG).findings()}

    assert any("maxHashSlotNum 100 and maxIndexNum 4000 make" in what for what in found)
    assert entries_of(root) == before
