"""Puts that take long, which the log names."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from mqstore.storage.errors import FilePending
from mqstore.storage.log.next_segment import LONG_PUT_S
from tests.unit.storage.commit_logs import Opened, message
from tests.unit.storage.gated_files import WAIT_S
from tests.unit.storage.log.test_commit_log import HeldUpSegments, make

__all__ = ["make"]


@pytest.mark.parametrize("advanced_s", [0.4, 0.6])
@pytest.mark.parametrize("waits", [True, False])
def test_a_put_that_takes_long_is_named_in_the_log(
    make: Callable[..., Opened],
    caplog: pytest.LogCaptureFixture,
    advanced_s: float,
    waits: bool,
) -> None:
    segments = HeldUpSegments()
    opened = make(allocation=segments, waits=waits)

    def put() -> None:
        try:
            opened.log.append(message())
        except FilePending as pending:
            pending.make()

    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(put)
        assert segments.requested.wait(WAIT_S)
        opened.clock.advance(advanced_s)
        segments.may_go_on.set()
        slow.result(WAIT_S)
    lines = [each.getMessage() for each in caplog.records]
    if advanced_s < LONG_PUT_S:
        assert lines == []
    elif waits:
        (line,) = lines
        assert line.startswith("a put held the lock of the log for 600 ms: ")
        assert "bytes at offset 0" in line
    else:
        (line,) = lines
        assert line.startswith("a put waited 600 ms for the segment at offset 0")
