"""The simulated machine itself: what it forgets, what it keeps, and that a seed decides."""

from __future__ import annotations

import errno
import math
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.storage.errors import StoreLocked
from mqstore.storage.mapped.mapped_file_queue import MappedFileQueue
from mqstore.storage.seams import FileSystem, MappedBytes
from mqstore.storage.system.overlay_files import OverlayFileSystem
from tests.simulation import Deadlock, PowerCut, SimulatedMachine
from tests.simulation.clock import SimulatedClock
from tests.simulation.disk import SimulatedDisk
from tests.simulation.inode import PAGE, SECTOR, Loss

ROOT = Path("/store")
FILE = ROOT / "file"
SEEDS = range(40)


@pytest.fixture
def disk() -> SimulatedDisk:
    made = SimulatedDisk(SimulatedClock())
    made.make_directories(ROOT)
    return made


@pytest.fixture
def mapping(disk: SimulatedDisk) -> MappedBytes:
    """A durable file of four pages."""
    disk.create(FILE, 4 * PAGE)
    disk.sync_directory(ROOT)
    return disk.map(FILE, writable=True)


def outcomes(disk: SimulatedDisk, look: Callable[[SimulatedDisk], object]) -> set[object]:
    return {look(disk.power_cut(seed)) for seed in SEEDS}


# Content


def test_what_was_synced_survives(disk: SimulatedDisk, mapping: MappedBytes) -> None:
    mapping.view[:] = b"x" * 4 * PAGE
    mapping.sync()
    assert outcomes(disk, lambda after: after.read(FILE)) == {b"x" * 4 * PAGE}


def test_any_subset_of_unsynced_pages_survives(disk: SimulatedDisk, mapping: MappedBytes) -> None:
    mapping.view[PAGE] = 1
    mapping.view[2 * PAGE] = 1

    def bits(after: SimulatedDisk) -> tuple[int, ...]:
        return tuple(after.read(FILE)[::PAGE])

    assert outcomes(disk, bits) == {(0, a, b, 0) for a in (0, 1) for b in (0, 1)}


def test_pages_tear_at_sectors_or_not_at_all(disk: SimulatedDisk, mapping: MappedBytes) -> None:
    mapping.view[:PAGE] = b"x" * PAGE
    torn = {disk.power_cut(seed, Loss.TORN_512).read(FILE)[:PAGE] for seed in SEEDS}
    assert any(set(page) == {0, ord("x")} for page in torn)
    for page in torn:
        sectors = [page[i : i + SECTOR] for i in range(0, PAGE, SECTOR)]
        assert all(len(set(sector)) == 1 for sector in sectors)
    whole = {disk.power_cut(seed, Loss.TORN_4096).read(FILE)[:PAGE] for seed in SEEDS}
    assert whole == {bytes(PAGE), b"x" * PAGE}
    assert disk.power_cut(0, Loss.DROP).read(FILE) == bytes(4 * PAGE)


def test_content_between_two_operations_may_be_what_survives(
    disk: SimulatedDisk, mapping: MappedBytes
) -> None:
    for value in (1, 2):
        mapping.view[0] = value
        disk.sync_directory(ROOT)
    assert outcomes(disk, lambda after: after.read(FILE)[0]) == {0, 1, 2}


def test_a_failed_sync_is_never_made_up_for(disk: SimulatedDisk, mapping: MappedBytes) -> None:
    mapping.view[0] = 1
    disk.fail_next("sync", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        mapping.sync()
    mapping.sync()
    assert mapping.view[0] == 1
    assert outcomes(disk, lambda after: after.read(FILE)[0]) == {0}
    mapping.view[1] = 1
    mapping.sync()
    assert outcomes(disk, lambda after: after.read(FILE)[:2]) == {b"\1\1"}


def test_a_failed_sync_may_have_written_a_part_of_its_pages(
    disk: SimulatedDisk, mapping: MappedBytes
) -> None:
    for page in range(4):
        mapping.view[page * PAGE] = 1
    disk.fail_next("sync", errno.EIO, short=True)
    with pytest.raises(OSError, match="Input/output"):
        mapping.sync()
    mapping.sync()
    written = outcomes(disk, lambda after: after.read(FILE)[::PAGE])
    assert written in ({b"\1\0\1\0"}, {b"\0\1\0\1"})
    assert disk.has_lost_pages


def test_a_write_through_a_descriptor_may_stop_half_way(
    disk: SimulatedDisk, mapping: MappedBytes
) -> None:
    disk.fail_next("write_through", errno.ENOSPC, short=True)
    with pytest.raises(OSError, match="No space left"):
        mapping.write(0, memoryview(b"abcd"))
    assert disk.read(FILE)[:4] == b"ab\0\0"
    mapping.write(2, memoryview(b"cd"))
    assert disk.read(FILE)[:4] == b"abcd"


def test_kill_keeps_the_page_cache_and_what_is_not_durable_stays_so(
    disk: SimulatedDisk, mapping: MappedBytes
) -> None:
    mapping.view[0] = 1
    after = disk.kill()
    mapping.view[0] = 2
    assert after.read(FILE)[0] == 1
    assert outcomes(after, lambda cut: cut.read(FILE)[0]) == {0, 1}
    assert after.power_cut(0, Loss.DROP).read(FILE)[0] == 0


def test_a_synced_write_has_its_whole_content(disk: SimulatedDisk) -> None:
    disk.write(FILE, b"old content")
    disk.sync_directory(ROOT)
    disk.write(FILE, b"new")
    assert outcomes(disk, lambda after: after.read(FILE)) == {b"new"}


def test_a_write_cut_short_leaves_old_new_or_a_mixture(disk: SimulatedDisk) -> None:
    disk.write(FILE, b"old content")
    disk.sync_directory(ROOT)
    disk.cut_at(len(disk.trace) + 1)
    with pytest.raises(PowerCut):
        disk.write(FILE, b"new")
    left = outcomes(disk, lambda after: after.read(FILE))
    assert {b"old content", b"new", b""} <= left
    assert {len(content) for content in left if isinstance(content, bytes)} == {0, 3, 11}


def test_growing_is_seen_and_durable(disk: SimulatedDisk, mapping: MappedBytes) -> None:
    mapping.view[0] = 1
    disk.extend(FILE, 5 * PAGE)
    assert outcomes(disk, lambda after: after.read(FILE)) == {b"\1" + bytes(5 * PAGE - 1)}
    with pytest.raises(OSError, match="Invalid"):
        disk.extend(FILE, PAGE)


def test_a_copy_is_of_what_is_seen(disk: SimulatedDisk, mapping: MappedBytes) -> None:
    mapping.view[PAGE : PAGE + 3] = b"abc"
    disk.copy(FILE, ROOT / "copy", PAGE, 3)
    assert disk.read(ROOT / "copy") == b"abc"


# Names


def test_a_new_name_survives_for_sure_only_once_its_directory_is_synced(
    disk: SimulatedDisk,
) -> None:
    disk.create(FILE, 10)
    assert outcomes(disk, lambda after: after.stat(FILE) is not None) == {True, False}
    disk.sync_directory(ROOT)
    assert outcomes(disk, lambda after: after.stat(FILE) is not None) == {True}


def test_an_unlinked_file_may_come_back(disk: SimulatedDisk, mapping: MappedBytes) -> None:
    disk.unlink(FILE)
    assert outcomes(disk, lambda after: tuple(after.list(ROOT))) == {(), ("file",)}
    disk.sync_directory(ROOT)
    assert outcomes(disk, lambda after: tuple(after.list(ROOT))) == {()}
    mapping.view[0] = 1  # memory stays


def test_a_rename_survives_whole_or_not_at_all(disk: SimulatedDisk) -> None:
    disk.write(FILE, b"old")
    disk.write(ROOT / "new", b"new")
    disk.sync_directory(ROOT)
    disk.rename(ROOT / "new", FILE)
    before, after = (("file", b"old"), ("new", b"new")), (("file", b"new"),)
    assert outcomes(disk, all_files) == {before, after}


def test_a_rename_between_directories_needs_both_synced(disk: SimulatedDisk) -> None:
    disk.make_directories(ROOT / "staging")
    disk.write(ROOT / "staging" / "x", b"x")
    disk.sync_directory(ROOT / "staging")
    disk.rename(ROOT / "staging" / "x", FILE)
    disk.sync_directory(ROOT)
    assert outcomes(disk, lambda after: after.read(FILE)) == {b"x"}
    left = outcomes(disk, lambda after: tuple(after.list(ROOT / "staging")))
    assert left == {(), ("x",)}


def all_files(disk: SimulatedDisk) -> tuple[tuple[str, bytes], ...]:
    return tuple((name, disk.read(ROOT / name)) for name in disk.list(ROOT))


def test_what_lies_in_a_lost_directory_is_lost(disk: SimulatedDisk) -> None:
    disk.make_directories(ROOT / "a")
    disk.remove_directory(ROOT / "a")
    disk.make_directories(ROOT / "a")
    disk.create(ROOT / "a" / "file", 10)
    disk.sync_directory(ROOT / "a")
    for seed in SEEDS:
        after = disk.power_cut(seed)
        assert after.list(ROOT) == ["a"]
        assert after.list(ROOT / "a") == ["file"]


# Faults


def test_any_operation_can_fail_by_its_number(disk: SimulatedDisk) -> None:
    disk.fail_at(len(disk.trace) + 2, errno.EIO)
    disk.create(FILE, 10)
    with pytest.raises(OSError, match="Input/output"):
        disk.sync_directory(ROOT)
    assert disk.trace[-3:] == [f"create {FILE}", f"sync {FILE}", f"sync_directory {ROOT}"]
    assert len(disk.trace) - 1 in disk.effects
    disk.sync_directory(ROOT)


def test_a_failed_creation_leaves_nothing(disk: SimulatedDisk) -> None:
    disk.fail_next("create", errno.ENOSPC)
    with pytest.raises(OSError, match="No space left"):
        disk.create(FILE, 10)
    disk.fail_next("sync", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        disk.create(FILE, 10)
    assert disk.list(ROOT) == []


def test_a_full_disk_refuses_blocks(disk: SimulatedDisk) -> None:
    disk.capacity = 2 * PAGE
    disk.create(FILE, 4 * PAGE, reserve=PAGE)
    disk.reserve(FILE, PAGE, PAGE)
    with pytest.raises(OSError, match="No space left"):
        disk.reserve(FILE, 2 * PAGE, PAGE)
    with pytest.raises(OSError, match="No space left"):
        disk.write(ROOT / "other", b"x")
    assert disk.usage(ROOT).free == 0


def test_nothing_happens_after_the_power_is_gone(disk: SimulatedDisk, mapping: MappedBytes) -> None:
    mapping.view[0] = 1
    disk.cut_at(len(disk.trace))
    with pytest.raises(PowerCut):
        mapping.sync()
    mapping.view[0] = 2
    for act in (mapping.sync, lambda: disk.unlink(FILE), lambda: disk.write(FILE, b"")):
        with pytest.raises(PowerCut):
            act()
    assert outcomes(disk, lambda after: after.read(FILE)[0]) == {0, 1}


def test_stores_into_holes_are_noticed(disk: SimulatedDisk) -> None:
    disk.create(FILE, 4 * PAGE, reserve=PAGE)
    mapping = disk.map(FILE, writable=True)
    mapping.view[0] = 1
    disk.stat(FILE)
    assert disk.holes_written == []
    mapping.view[3 * PAGE] = 1
    disk.stat(FILE)
    assert disk.holes_written == [f"page 3 of {FILE}"]


def test_the_lock_ends_with_the_process(disk: SimulatedDisk) -> None:
    held = disk.lock(ROOT / "lock")
    assert disk.read(ROOT / "lock") == b"lock"
    with pytest.raises(StoreLocked):
        disk.lock(ROOT / "lock")
    assert not disk.kill().is_locked(ROOT / "lock")
    held.release()
    disk.lock(ROOT / "lock")


@pytest.mark.parametrize(
    ("act", "error"),
    [
        (lambda disk: disk.read(ROOT / "absent"), FileNotFoundError),
        (lambda disk: disk.read(ROOT), IsADirectoryError),
        (lambda disk: disk.create(ROOT / "no" / "file", 1), FileNotFoundError),
        (lambda disk: disk.create(FILE, 1), FileExistsError),
        (lambda disk: disk.create(FILE / "below", 1), NotADirectoryError),
        (lambda disk: disk.make_directories(FILE / "below"), NotADirectoryError),
        (lambda disk: disk.unlink(ROOT / "absent"), FileNotFoundError),
        (lambda disk: disk.remove_directory(ROOT), OSError),
        (lambda disk: disk.sync_directory(ROOT / "absent"), FileNotFoundError),
        (lambda disk: disk.rename(FILE, ROOT / "no" / "file"), FileNotFoundError),
    ],
)
def test_mistakes_get_the_real_errors(
    disk: SimulatedDisk,
    mapping: MappedBytes,
    act: Callable[[FileSystem], object],
    error: type[OSError],
) -> None:
    with pytest.raises(error):
        act(disk)


def test_an_overlay_over_it_leaves_it_alone(disk: SimulatedDisk, mapping: MappedBytes) -> None:
    overlay = OverlayFileSystem(disk)
    overlay.map(FILE, writable=True).view[0] = 7
    overlay.create(ROOT / "new", 10)
    assert disk.read(FILE)[0] == 0
    assert disk.list(ROOT) == ["file"]


# Clock and scheduler


def test_the_wall_clock_steps_and_monotonic_time_does_not() -> None:
    clock = SimulatedClock(1_000)
    clock.advance(2.5)
    clock.step(-10_000)
    assert (clock.now_ms(), clock.monotonic()) == (-6_500, 2.5)
    with pytest.raises(ValueError, match="cannot go back"):
        clock.advance(-1)


class Ticker:
    def __init__(self, name: str, interval: float, seen: list[tuple[str, float]]) -> None:
        self.name = name
        self.interval = interval
        self.seen = seen

    def step(self, now: float) -> float:
        self.seen.append((self.name, now))
        return now + self.interval


def refuse_to_fail(error: BaseException) -> None:
    raise AssertionError(error)


def test_waiting_runs_the_others_until_it_is_true() -> None:
    machine = SimulatedMachine(seed=3)
    seen: list[tuple[str, float]] = []
    machine.scheduler.start(Ticker("a", 1.0, seen), refuse_to_fail)
    assert machine.scheduler.signal().wait_for(lambda: len(seen) >= 5, None)
    assert machine.clock.monotonic() > 0


def test_waiting_gives_up_when_simulated_time_is_up() -> None:
    machine = SimulatedMachine(seed=3)
    seen: list[tuple[str, float]] = []
    machine.scheduler.start(Ticker("a", 1.0, seen), refuse_to_fail)
    assert not machine.scheduler.signal().wait_for(lambda: False, 2.5)
    assert machine.clock.monotonic() == 2.5
    assert {now for _, now in seen} >= {0.0, 1.0, 2.0}


def test_waiting_for_what_no_service_does_is_a_deadlock() -> None:
    with pytest.raises(Deadlock):
        SimulatedMachine(seed=3).scheduler.signal().wait_for(lambda: False, None)


def test_a_service_that_never_rests_is_noticed() -> None:
    machine = SimulatedMachine(seed=3)
    machine.scheduler.start(Ticker("a", 0.0, []), refuse_to_fail)
    with pytest.raises(Deadlock, match="spins"):
        machine.scheduler.run_for(1)


def test_a_failed_step_is_reported_and_the_last() -> None:
    machine = SimulatedMachine(seed=3)
    failures: list[BaseException] = []

    class Failing:
        name = "failing"

        def step(self, now: float) -> float:
            raise OSError("disk on fire")

    handle = machine.scheduler.start(Failing(), failures.append)
    machine.scheduler.run_for(1)
    handle.wake()
    handle.stop()
    machine.scheduler.run_for(1)
    assert len(failures) == 1


def test_a_power_cut_in_a_step_ends_everything() -> None:
    machine = SimulatedMachine(seed=3)

    class Syncing:
        name = "syncing"

        def step(self, now: float) -> float:
            machine.disk.sync_directory(Path("/"))
            return math.inf

    machine.disk.cut_at(0)
    machine.scheduler.start(Syncing(), refuse_to_fail)
    with pytest.raises(PowerCut):
        machine.scheduler.run_for(1)


# Determinism


def run(seed: int) -> tuple[list[str], list[tuple[str, float]], bytes]:
    """A little of everything, driven by one seed."""
    machine = SimulatedMachine(seed)
    queue = MappedFileQueue(ROOT / "log", 2 * PAGE, machine.seams, staging=ROOT / "staging")
    seen: list[tuple[str, float]] = []
    for name in "abc":
        machine.scheduler.start(Ticker(name, 0.3, seen), refuse_to_fail)
    for number in range(4):
        mapped = queue.add(number * 2 * PAGE)
        mapped.view[:] = machine.random.randbytes(2 * PAGE)
        mapped.wrote_position = machine.random.randrange(2 * PAGE)
        machine.scheduler.run_for(machine.random.random())
        machine.scheduler.run_some(3)
        if machine.random.random() < 0.5:
            queue.flush()
    after = machine.disk.power_cut(seed)
    content = b"".join(after.read(ROOT / "log" / name) for name in after.list(ROOT / "log"))
    return machine.disk.trace, seen, content


@given(st.integers(0, 2**32))
def test_one_seed_is_one_history(seed: int) -> None:
    assert run(seed) == run(seed)


def test_another_seed_is_another_history() -> None:
    assert run(1) != run(2)
