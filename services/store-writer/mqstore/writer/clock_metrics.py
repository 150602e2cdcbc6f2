"""Metrics of the wall clock's steps."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from mqstore.storage import MessageStore

SHOWN_S: Final = 3_600
"""Seconds for which the metric has the size of a step, long enough for an alert."""


def of_clock(store: MessageStore, now: float) -> Iterable[Metric]:
    """Yield the metrics of clock steps. ``now`` is the monotonic time in seconds."""
    watch = store.clock
    is_recent = watch.last is not None and now - watch.last_seen < SHOWN_S
    size_ms = watch.last.step_ms if is_recent and watch.last is not None else 0
    yield CounterMetricFamily(
        "mqstore_clock_steps",
        "Steps of the wall clock by more than a minute.",
        value=watch.seen,
    )
    yield GaugeMetricFamily(
        "mqstore_clock_step_seconds",
        "Seconds by which the last step of the last hour set the wall clock, negative if back; 0 "
        "without one.",
        value=size_ms / 1000,
    )
