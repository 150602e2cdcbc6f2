"""The kernel searches records exactly and linearly, also over heads in one another."""

from __future__ import annotations

import _thread
import operator
import signal
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.storage import _kernel
from mqstore.storage._kernel import Defect, RecordSearch
from tests.unit.storage.record_examples import HEAD_SIZE, log_of, nested_heads, ordinary


@pytest.mark.parametrize("size", [100, 4096, 6000, 100_000, 3 << 20])
def test_a_search_over_nested_heads_passes_each_byte_once(size: int) -> None:
    data = nested_heads(size, 700)
    search = RecordSearch(data, 700, True)

    assert search.find(0, size) == -1

    heads = size // HEAD_SIZE
    assert search.checksummed <= size + heads * 4096
    once = search.checksummed
    assert search.find(0, size) == -1
    assert search.checksummed - once <= heads * 4096, "what was summed is not summed again"


@given(st.integers(1, 900), st.data())
def test_a_search_over_nested_heads_finds_the_whole_one(heads: int, draw: st.DataObject) -> None:
    whole = draw.draw(st.integers(0, heads - 1))
    size = heads * HEAD_SIZE + draw.draw(st.integers(5, 5000))
    data = nested_heads(size, 0, whole)

    search = RecordSearch(data, 0, True)

    assert search.find(0, size) == whole * HEAD_SIZE
    assert search.check(whole * HEAD_SIZE, size) == (Defect.NONE, size - whole * HEAD_SIZE)
    assert search.find(whole * HEAD_SIZE + 1, size) == -1


@pytest.mark.parametrize("walk", ["find", "check_run"])
def test_signals_are_handled_inside_of_a_walk(walk: str) -> None:
    """A process that is to end need not wait for the end of a segment."""
    data = log_of(*((ordinary(), number) for number in range(10)))
    calls: dict[str, Callable[[], object]] = {
        "find": partial(RecordSearch(data, 1, True).find, 0, len(data)),
        "check_run": partial(
            _kernel.check_run, data, 0, len(data), 0, verify_body=True, max_records=10
        ),
    }
    behind: list[int] = []
    in_turn: list[Callable[[], object]] = [
        partial(_thread.interrupt_main, signal.SIGALRM),
        calls[walk],
        partial(behind.append, 1),
    ]

    def stop(*_: object) -> None:
        raise InterruptedError

    # The interpreter handles no signal between these calls, as they are made from C.
    before = signal.signal(signal.SIGALRM, stop)
    try:
        with pytest.raises(InterruptedError):
            list(map(operator.call, in_turn))
    finally:
        signal.signal(signal.SIGALRM, before)
    assert not behind
