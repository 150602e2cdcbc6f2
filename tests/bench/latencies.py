"""Percentiles of what single calls took; `peer/Latencies.java` gives the peer's."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeVar

from tests.bench.harness import Figures, Metric

SHARES: Final = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999}

T = TypeVar("T")


def metrics(name: str) -> list[Metric]:
    """One row for each percentile, in milliseconds."""
    return [Metric(key, f"{name}, {key}", "ms", higher_is_better=False) for key in SHARES]


def timed(call: Callable[[T], object], arguments: Iterable[T]) -> list[float]:
    """Seconds of one call for each of the arguments."""
    clock = time.perf_counter
    seconds = []
    for argument in arguments:
        began = clock()
        call(argument)
        seconds.append(clock() - began)
    return seconds


def figures(seconds: Sequence[float]) -> Figures:
    """Percentiles in milliseconds."""
    ordered = sorted(seconds)
    return {key: ordered[int(len(ordered) * share)] * 1000 for key, share in SHARES.items()}
