"""The state page, on real files and across real processes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from mqstore.storage.errors import StoreNotOpen
from mqstore.storage.metadata.state_page import StatePage, StatePageReader, read_state
from mqstore.storage.metadata.state_snapshot import Health
from mqstore.storage.system.posix_files import PosixFileSystem

STORE = "0123456789abcdef0123456789abcdef"
OTHER_STORE = "f" * 32
BOOT = "11111111-2222-3333-4444-555555555555"

FILES = PosixFileSystem()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def page(path: Path) -> StatePage:
    return StatePage.create(FILES, path, STORE, BOOT)


def test_a_reader_sees_what_the_writer_set(path: Path, page: StatePage) -> None:
    page.set_min(1 << 30)
    page.set_max((1 << 62) + 3)
    page.set_flushed(5)
    page.set_dispatched((1 << 40) + 7)
    page.set_recovery_progress(2, 9)
    page.set_index_complete(True)
    page.bump_index_generation()
    page.set_health(Health.READY)

    found = StatePageReader.open(FILES, path).snapshot()

    assert (found.min_offset, found.max_offset) == (1 << 30, (1 << 62) + 3)
    assert (found.flushed_offset, found.dispatched_offset) == (5, (1 << 40) + 7)
    assert (found.recovery_done, found.recovery_total) == (2, 9)
    assert (found.index_complete, found.index_generation) == (True, 1)
    assert found.health is Health.READY
    assert found.store_id == STORE
    assert found.boot_id == BOOT.replace("-", "")


def test_a_new_page_is_recovering_and_empty(page: StatePage) -> None:
    found = page.snapshot()

    assert found.health is Health.RECOVERING
    assert (found.min_offset, found.max_offset, found.flushed_offset) == (0, 0, 0)
    assert not found.index_complete


def test_opening_again_keeps_the_watermark_and_advances_the_epoch(
    path: Path, page: StatePage
) -> None:
    page.set_flushed(4711)
    page.set_health(Health.READY)
    before = page.epoch
    page.close()

    again = StatePage.create(FILES, path, STORE, BOOT)

    assert again.flushed_offset == 4711
    assert again.epoch == before + 1
    assert again.health is Health.RECOVERING


def test_a_page_of_another_store_starts_from_zeros(path: Path, page: StatePage) -> None:
    page.set_flushed(4711)
    page.close()

    again = StatePage.create(FILES, path, OTHER_STORE, BOOT)

    assert again.flushed_offset == 0
    assert again.store_id == OTHER_STORE


@pytest.mark.parametrize("content", [b"", b"x" * 100, bytes(4096), b"\xff" * 4096])
def test_what_is_no_page_becomes_one_for_a_writer(path: Path, content: bytes) -> None:
    path.write_bytes(content)

    page = StatePage.create(FILES, path, STORE, BOOT)

    assert page.is_valid
    assert (page.min_offset, page.max_offset, page.dispatched_offset) == (0, 0, 0)


@pytest.mark.parametrize("content", [None, b"", b"x" * 100, bytes(4096), b"\xff" * 4096])
def test_what_is_no_page_is_refused_by_a_reader(path: Path, content: bytes | None) -> None:
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(StoreNotOpen):
        StatePageReader.open(FILES, path)
    assert read_state(FILES, path) is None


@pytest.mark.parametrize(
    ("content", "state"), [(b"", "absent"), (bytes(4096), "absent"), (b"x" * 4096, "unsupported")]
)
def test_a_page_that_is_being_made_is_absent_and_another_one_unsupported(
    path: Path, content: bytes, state: str
) -> None:
    path.write_bytes(content)
    with pytest.raises(StoreNotOpen) as refused:
        StatePageReader.open(FILES, path)
    assert refused.value.state == state


def test_read_state_returns_the_state_of_the_last_writer(path: Path, page: StatePage) -> None:
    page.set_flushed(99)
    page.close()

    found = read_state(FILES, path)

    assert found is not None
    assert found.flushed_offset == 99


def test_an_unknown_health_reads_as_failed(path: Path, page: StatePage) -> None:
    page._store(56, 77)

    assert StatePageReader.open(FILES, path).health is Health.FAILED


def test_a_change_is_framed_by_new_epochs(page: StatePage) -> None:
    before = page.epoch

    with page.changing():
        during = page.epoch
        assert page.is_changing
        with pytest.raises(StoreNotOpen):
            page.snapshot()

    assert before < during < page.epoch
    assert page.snapshot().epoch == page.epoch


def test_a_change_that_a_kill_cut_short_is_over_with_the_next_opening(
    path: Path, page: StatePage
) -> None:
    change = page.changing()
    change.__enter__()
    with pytest.raises(StoreNotOpen):
        StatePageReader.open(FILES, path).snapshot()
    before = page.epoch
    assert (left := read_state(FILES, path)) is not None
    assert left.epoch == before

    again = StatePage.create(FILES, path, STORE, BOOT)

    assert again.epoch == before + 1
    assert StatePageReader.open(FILES, path).snapshot().epoch == again.epoch


def test_a_snapshot_of_a_page_in_motion_is_refused(page: StatePage) -> None:
    class Moving(StatePageReader):
        @property
        def max_offset(self) -> int:
            page.advance_epoch()
            return super().max_offset

    with pytest.raises(StoreNotOpen) as refused:
        Moving(page._mapped).snapshot()
    assert refused.value.state == "recovering"


def test_wait_ends_at_once_when_something_arrived_before(path: Path, page: StatePage) -> None:
    reader = StatePageReader.open(FILES, path)
    seen = reader.arrivals
    page.set_dispatched(1)

    assert reader.wait(seen, timeout_s=60)


def test_wait_without_arrivals_ends_with_the_time(path: Path, page: StatePage) -> None:
    reader = StatePageReader.open(FILES, path)

    assert not reader.wait(reader.arrivals, timeout_s=0.01)


def test_an_arrival_wakes_a_waiting_thread(path: Path, page: StatePage) -> None:
    reader = StatePageReader.open(FILES, path)
    seen = reader.arrivals
    woken: list[bool] = []
    waiter = threading.Thread(target=lambda: woken.append(reader.wait(seen, 60)))
    waiter.start()

    page.set_dispatched(10)

    waiter.join(60)
    assert woken == [True]


def test_an_arrival_wakes_another_process_with_a_read_only_mapping(
    path: Path, page: StatePage
) -> None:
    program = (
        "import sys; from pathlib import Path;"
        "from mqstore.storage.system.posix_files import PosixFileSystem as F;"
        "from mqstore.storage.metadata.state_page import StatePageReader as R;"
        "r = R.open(F(), Path(sys.argv[1])); seen = r.arrivals; print('ready', flush=True);"
        "print(r.wait(seen, 60), r.dispatched_offset)"
    )
    command = [sys.executable, "-c", program, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        page.set_dispatched(12345)
        assert process.stdout.readline() == "True 12345\n"


def test_the_next_arrival_is_written_to_an_event_file_descriptor_once(page: StatePage) -> None:
    event_fd = os.eventfd(0, os.EFD_NONBLOCK)
    try:
        page.notify(event_fd)
        page.set_dispatched(1)
        page.set_dispatched(2)
        assert os.eventfd_read(event_fd) == 1

        page.notify(event_fd)
        page.notify(-1)
        page.set_dispatched(3)
        with pytest.raises(BlockingIOError):
            os.eventfd_read(event_fd)
    finally:
        os.close(event_fd)


def test_arrivals_wrap_around(page: StatePage) -> None:
    page._store(256, 0xFFFFFFFF)

    page.wake()

    assert page.arrivals == 0


def test_a_damaged_watermark_proves_nothing(path: Path, page: StatePage) -> None:
    page.set_flushed(99)
    page.close()
    content = bytearray(path.read_bytes())
    content[200] ^= 1
    path.write_bytes(content)

    left = read_state(FILES, path)
    assert left is not None
    assert left.flushed_offset == 0
    assert StatePage.create(FILES, path, STORE, BOOT).flushed_offset == 0
