"""The failure state of an open store: the first report ends the store, and changes are refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mqstore.storage.errors import StoreFailed, StoreNotWritable
from mqstore.storage.failure import FailureState
from mqstore.storage.metadata.state_page import StatePage
from mqstore.storage.metadata.state_snapshot import Health
from mqstore.storage.system.posix_files import PosixFileSystem

STORE_ID = "0" * 31 + "1"


@pytest.fixture
def page(tmp_path: Path) -> StatePage:
    path = tmp_path / "state"
    return StatePage.create(PosixFileSystem(), path, STORE_ID, STORE_ID)


def failure_state(
    page: StatePage,
    read_only: str | None = None,
    on_failure: Callable[[BaseException], None] | None = None,
) -> FailureState:
    return FailureState(page, read_only, on_failure)


def test_the_first_report_ends_the_store_and_later_ones_have_no_effect(page: StatePage) -> None:
    ended: list[BaseException] = []
    heard: list[StoreFailed] = []
    state = failure_state(page, on_failure=ended.append)
    state.add_listener(heard.append)
    state.require_writable()
    first = OSError("the disk is gone")
    state.report(first)
    state.report(OSError("again"))
    assert ended == [first]
    assert [str(each) for each in heard] == ["the disk is gone"]
    assert state.error is first
    assert page.health is Health.FAILED


def test_a_failed_store_raises_its_error_for_every_change(page: StatePage) -> None:
    state = failure_state(page, "the log is damaged")
    state.report(StoreFailed("a sync failed"))
    assert state.why_read_only == "a sync failed"
    for require in (state.require_none, state.require_writable):
        with pytest.raises(StoreFailed, match="a sync failed"):
            require()


def test_a_store_that_may_only_be_read_has_not_failed(page: StatePage) -> None:
    state = failure_state(page, "the log is damaged")
    state.require_none()
    assert state.why_read_only == "the log is damaged"
    with pytest.raises(StoreNotWritable, match="nothing can be changed: the log is damaged"):
        state.require_writable()
