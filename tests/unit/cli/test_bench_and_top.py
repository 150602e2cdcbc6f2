"""The figures of ``mqstore bench`` and ``mqstore top``."""

from __future__ import annotations

from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.cli import top
from mqstore.cli.bench import Load, Run, percentile, report
from mqstore.cli.top import Sample, Watch, head, view
from mqstore.client import TopicSum, Unreachable


class Clock:
    """A clock that advances when it is slept on, and by each request."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s

    def pass_s(self, seconds: float) -> None:
        self.now_s += seconds


def latencies(load: Load, durations: list[float]) -> list[float]:
    clock, left = Clock(), iter(durations)
    run = Run(load, clock)

    def request() -> int:
        clock.pass_s(next(left))
        return load.batch

    run.work(request, clock.pass_s)
    return [round(each, 6) for each in run.latencies_s]


def test_at_a_rate_a_latency_counts_from_when_the_request_was_due() -> None:
    load = Load(clients=1, requests=4, batch=1, rate=10.0)
    assert latencies(load, [0.01, 0.35, 0.01, 0.01]) == [0.01, 0.35, 0.26, 0.17]


def test_without_a_rate_a_latency_counts_from_the_sending() -> None:
    load = Load(clients=1, requests=3, batch=5, rate=None)
    assert latencies(load, [0.01, 0.35, 0.01]) == [0.01, 0.35, 0.01]


def test_a_batch_is_due_after_its_messages() -> None:
    assert Load(1, 9, 10, 100.0).due_s(3) == pytest.approx(0.3)


def test_a_run_ends_at_a_failure_and_with_nothing_to_receive() -> None:
    run = Run(Load(1, 5, 1, None))
    run.work(lambda: 0)
    assert (run.messages, run.failures) == (0, [])

    def fail() -> int:
        raise OSError("gone")

    run.work(fail)
    assert [str(each) for each in run.failures] == ["gone"]
    run.work(lambda: 1)
    assert run.messages == 0


@given(st.lists(st.floats(0, 100), min_size=1), st.floats(0.001, 100))
def test_a_percentile_is_a_value_that_is_not_below_its_part(values: list[float], at: float) -> None:
    ordered = sorted(values)
    found = percentile(ordered, at)
    assert found in ordered
    assert sum(each <= found for each in ordered) >= at / 100 * len(ordered) - 1e-6
    assert percentile(ordered, 100) == ordered[-1]


def test_a_report_has_rates_and_percentiles() -> None:
    clock = Clock()
    run = Run(Load(1, 2, 10, None), clock)

    def request() -> int:
        clock.pass_s(0.5)
        return 10

    run.work(request)
    found = report(run)
    assert (found["messages"], found["requests"], found["messagesPerS"]) == (20, 2, 20.0)
    assert found["p50Ms"] == found["maxMs"] == 500.0


def sample(at_s: float, end: int, lag: int) -> Sample:
    store: Any = type(
        "Store",
        (),
        {
            "shard": 0,
            "health": "ready",
            "min_offset": 0,
            "max_offset": end,
            "flush_behind": 0,
            "disk_used": 25,
            "disk_total": 100,
            "disk_free": 75,
        },
    )
    lags = {("g", "orders"): TopicSum(topic="orders", lag=lag, expired=0, lag_ms=5)}
    return Sample(at_s, store, lags)


def test_rates_are_changes_between_two_looks() -> None:
    first = view(None, sample(0, 1000, 30))
    assert (first["bytesPerS"], first["groups"][0]["lagPerS"]) == (None, None)
    second = view(sample(0, 1000, 30), sample(2, 5096, 10))
    assert (second["bytesPerS"], second["diskUsedPercent"]) == (2048.0, 25.0)
    assert second["groups"][0]["lagPerS"] == -10.0
    assert "written 2.0 KiB/s" in head(second)


def test_a_look_without_a_reply_keeps_the_last_state_and_names_the_trouble(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gone = Unreachable("query at /v1/lags: refused", was_sent=False)
    replies: list[Any] = [gone, sample(0, 1000, 30), gone, sample(2, 5096, 10)]

    def look(client: Any) -> Sample:
        reply = replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return cast(Sample, reply)

    monkeypatch.setattr(top, "_sample", look)
    watch = Watch(cast(Any, None))
    with pytest.raises(Unreachable):
        watch.look()
    first = watch.look()
    assert first["trouble"] == []
    assert watch.look() == {**first, "trouble": ["query at /v1/lags: refused"]}
    later = watch.look()
    assert (later["trouble"], later["bytesPerS"]) == ([], 2048.0)
