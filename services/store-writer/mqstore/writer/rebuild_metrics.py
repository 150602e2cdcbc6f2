"""Metrics of the index and of its rebuilds."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from mqstore.storage import MessageStore


def of_index(store: MessageStore) -> Iterable[Metric]:
    yield GaugeMetricFamily(
        "mqstore_index_complete",
        "Whether the index has all that is dispatched, so that key queries miss nothing",
        value=float(store.dispatcher.catch_up.complete),
    )
    yield GaugeMetricFamily(
        "mqstore_index_trouble",
        "Whether files of the index are gone, or it lacks more than is caught up by itself",
        value=float(store.index_trouble is not None),
    )
    running, last = store.rebuilds.running, store.rebuilds.last
    yield GaugeMetricFamily(
        "mqstore_index_rebuild_running",
        "Whether a job rebuilds the index",
        value=float(running is not None),
    )
    yield GaugeMetricFamily(
        "mqstore_index_rebuild_items",
        "Items of whole parts that have come from the job that runs",
        value=0 if running is None else running.items,
    )
    outcomes = CounterMetricFamily(
        "mqstore_index_rebuilds", "Rebuilds that ended", labels=["outcome"]
    )
    for outcome, count in store.rebuilds.ended.items():
        outcomes.add_metric([outcome], count)
    yield outcomes
    yield GaugeMetricFamily(
        "mqstore_index_rebuild_last_seconds",
        "How long the last rebuild took that ended; 0 for none",
        value=0 if last is None else last.seconds,
    )
