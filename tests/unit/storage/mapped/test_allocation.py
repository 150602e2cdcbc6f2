from __future__ import annotations

import errno
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqstore.storage.errors import SegmentCreationFailed
from mqstore.storage.mapped.allocation import AllocationService
from mqstore.storage.mapped.mapped_file import MappedFile
from mqstore.storage.mapped.mapped_file_queue import MappedFileQueue
from mqstore.storage.paths import segment_name
from mqstore.storage.system.threads import production_seams
from tests.simulation import SimulatedMachine
from tests.unit.storage.small_disk import small_disk

SIZE = 64 << 10
LOG = Path("/store/log")


@pytest.fixture
def machine() -> SimulatedMachine:
    return SimulatedMachine(seed=5)


@pytest.fixture
def queue(machine: SimulatedMachine) -> MappedFileQueue:
    return MappedFileQueue(LOG, SIZE, machine.seams, staging=Path("/store/staging"))


@pytest.fixture
def service(machine: SimulatedMachine) -> AllocationService:
    started = AllocationService(machine.seams)
    started.start(refuse_to_fail)
    return started


def refuse_to_fail(error: BaseException) -> None:
    raise AssertionError(error)


def created(machine: SimulatedMachine) -> list[str]:
    return [line.rsplit("-", 1)[-1] for line in machine.disk.trace if line.startswith("create ")]


def test_the_needed_file_comes_first_and_the_next_follows(
    machine: SimulatedMachine, queue: MappedFileQueue, service: AllocationService
) -> None:
    service.request(queue, 0, SIZE)
    first = service.take(0)
    queue.append(first)
    machine.scheduler.run_for(1)
    assert created(machine) == [segment_name(0), segment_name(SIZE)]
    assert queue.files == (first,)


def test_a_spare_is_there_at_once(
    machine: SimulatedMachine, queue: MappedFileQueue, service: AllocationService
) -> None:
    service.request(queue, 0, SIZE)
    queue.append(service.take(0))
    machine.scheduler.run_for(1)
    before = created(machine)
    service.request(queue, SIZE, 2 * SIZE)
    queue.append(service.take(SIZE, timeout_s=0))
    assert created(machine) == before
    assert queue.max_offset == SIZE


def test_spares_are_given_up_and_made_again_once_they_are_needed(
    machine: SimulatedMachine, queue: MappedFileQueue, service: AllocationService
) -> None:
    service.request(queue, 0, SIZE)
    queue.append(service.take(0))
    machine.scheduler.run_for(1)
    assert service.give_up_spares() == SIZE
    assert machine.disk.list(LOG) == [segment_name(0)]
    assert service.give_up_spares() == 0
    service.makes_spares = False
    service.request(queue, SIZE, 2 * SIZE)
    queue.append(service.take(SIZE))
    machine.scheduler.run_for(1)
    assert machine.disk.list(LOG) == [segment_name(0), segment_name(SIZE)]


def test_a_file_that_a_put_waits_for_is_no_spare(
    machine: SimulatedMachine, queue: MappedFileQueue, service: AllocationService
) -> None:
    service.request(queue, 0, SIZE)
    service.wait(0)
    service.makes_spares = False
    service.give_up_spares()
    queue.append(service.take(0, timeout_s=0))
    assert machine.disk.list(LOG)[0] == segment_name(0)


def test_one_path_is_made_once(
    machine: SimulatedMachine, queue: MappedFileQueue, service: AllocationService
) -> None:
    for _ in range(3):
        service.request(queue, 0, SIZE)
    service.take(0)
    machine.scheduler.run_for(1)
    assert created(machine) == [segment_name(0), segment_name(SIZE)]


def test_no_room_for_the_needed_file_is_refused_and_may_be_tried_again(
    machine: SimulatedMachine, queue: MappedFileQueue, service: AllocationService
) -> None:
    machine.disk.capacity = SIZE - 1
    service.request(queue, 0, SIZE)
    with pytest.raises(SegmentCreationFailed, match="No space left"):
        service.take(0)
    machine.disk.capacity = SIZE
    service.request(queue, 0, SIZE)
    assert service.take(0).base_offset == 0


def test_no_room_for_the_spare_is_no_error_until_it_is_needed(
    machine: SimulatedMachine, queue: MappedFileQueue, service: AllocationService
) -> None:
    machine.disk.capacity = SIZE
    service.request(queue, 0, SIZE)
    queue.append(service.take(0))
    machine.scheduler.run_for(1)
    machine.disk.capacity = 2 * SIZE
    service.request(queue, SIZE, 2 * SIZE)
    assert service.take(SIZE).base_offset == SIZE


def test_the_failure_of_a_spare_file_reaches_the_put_that_needs_it(
    machine: SimulatedMachine, queue: MappedFileQueue, service: AllocationService
) -> None:
    service.request(queue, 0, SIZE)
    machine.disk.fail_next("create", errno.EIO)
    with pytest.raises(SegmentCreationFailed, match="Input/output"):
        service.take(0)


def test_no_spare_is_made_behind_a_file_that_cannot_be_made(
    machine: SimulatedMachine, queue: MappedFileQueue, service: AllocationService
) -> None:
    """A halt would leave a log with a hole."""
    service.request(queue, 0, SIZE)
    machine.disk.fail_next("create", errno.EIO)
    with pytest.raises(SegmentCreationFailed):
        service.take(0)
    machine.scheduler.run_for(1)
    assert machine.disk.list(queue.directory) == []
    service.request(queue, 0, SIZE)
    assert service.take(0).base_offset == 0
    machine.scheduler.run_for(1)
    assert len(machine.disk.list(queue.directory)) == 2


def slow_service(directory: Path) -> tuple[AllocationService, threading.Event]:
    """A service with a request for the first file, which it makes after the event is set."""
    seams = production_seams()
    go_on = threading.Event()

    class SlowQueue(MappedFileQueue):
        def create(self, offset: int) -> MappedFile:
            assert go_on.wait(30)
            return super().create(offset)

    service = AllocationService(seams)
    service.start(refuse_to_fail)
    queue = SlowQueue(directory / "log", SIZE, seams, staging=directory / "staging")
    service.request(queue, 0, None)
    return service, go_on


def test_a_disk_too_slow_is_refused_and_the_file_is_found_later(tmp_path: Path) -> None:
    service, go_on = slow_service(tmp_path)
    with pytest.raises(SegmentCreationFailed, match=r"not made within 0\.01 s"):
        service.take(0, timeout_s=0.01)
    go_on.set()
    assert service.take(0, timeout_s=30).base_offset == 0
    service.close()


def test_a_file_is_waited_for_without_being_taken(tmp_path: Path) -> None:
    service, go_on = slow_service(tmp_path)
    assert not service.is_settled(0)
    with pytest.raises(SegmentCreationFailed, match=r"not made within 0\.01 s"):
        service.wait(0, timeout_s=0.01)
    go_on.set()
    service.wait(0, timeout_s=30)
    assert service.is_settled(0)
    assert service.take(0, timeout_s=0).base_offset == 0
    service.wait(0, timeout_s=0)  # it was taken: there is nothing to wait for
    service.close()


def test_a_waiter_gets_the_reason_why_a_file_cannot_be_made(
    machine: SimulatedMachine, queue: MappedFileQueue, service: AllocationService
) -> None:
    machine.disk.capacity = SIZE - 1
    service.request(queue, 0, SIZE)
    with pytest.raises(SegmentCreationFailed, match="No space left"):
        service.wait(0)


def test_taking_what_was_not_requested_is_a_mistake(service: AllocationService) -> None:
    with pytest.raises(ValueError, match="not requested"):
        service.take(0)


class BrokenQueue(MappedFileQueue):
    def create(self, offset: int) -> MappedFile:
        raise RuntimeError("a defect of ours")


def test_a_defect_ends_the_service_and_reaches_the_taker(machine: SimulatedMachine) -> None:
    failures: list[BaseException] = []
    service = AllocationService(machine.seams)
    service.start(failures.append)
    service.request(BrokenQueue(LOG, SIZE, machine.seams, staging=LOG), 0, None)
    with pytest.raises(SegmentCreationFailed, match="a defect of ours"):
        service.take(0)
    assert [str(error) for error in failures] == ["a defect of ours"]


def test_never_started_it_works_in_the_callers_thread(
    machine: SimulatedMachine, queue: MappedFileQueue
) -> None:
    service = AllocationService(machine.seams)
    service.request(queue, 0, SIZE)
    assert service.take(0).base_offset == 0
    service.close()
    assert machine.disk.list(LOG) == [segment_name(0)]


def test_closing_removes_files_that_were_not_taken(
    machine: SimulatedMachine, queue: MappedFileQueue, service: AllocationService
) -> None:
    service.request(queue, 0, SIZE)
    queue.append(service.take(0))
    machine.scheduler.run_for(1)
    assert machine.disk.list(LOG) == [segment_name(0), segment_name(SIZE)]
    service.close()
    assert machine.disk.list(LOG) == [segment_name(0)]


def test_pages_ahead_are_populated_in_the_background(tmp_path: Path) -> None:
    seams = production_seams()
    queue = MappedFileQueue(
        tmp_path / "log", 1 << 20, seams, staging=tmp_path / "staging", populate_window=128 << 10
    )
    service = AllocationService(seams)
    mapped = queue.add(0)
    assert mapped.populate_at == 64 << 10
    mapped.wrote_position = 100 << 10
    service.populate(queue)
    service.step(0.0)
    assert mapped.populate_at == 164 << 10


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", SIZE + (32 << 10)) as disk:
        yield disk


def test_a_full_volume_gives_the_needed_file_without_a_spare(full_disk: Path) -> None:
    seams = production_seams()
    queue = MappedFileQueue(full_disk / "log", SIZE, seams, staging=full_disk / "staging")
    service = AllocationService(seams)
    service.start(refuse_to_fail)
    service.request(queue, 0, SIZE)
    queue.append(service.take(0))
    service.request(queue, SIZE, None)
    with pytest.raises(SegmentCreationFailed, match="No space left"):
        service.take(SIZE)
    assert [path.name for path in queue.directory.iterdir()] == [segment_name(0)]
    service.close()
    queue.close()
