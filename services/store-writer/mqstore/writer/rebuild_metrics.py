"""Metrics of the index and of its rebuilds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from mqstore.storage import MessageStore

OUTCOMES: Final = ("published", "given-up", "lapsed", "failed", "closed")


def of_index(store: MessageStore) -> Iterable[Metric]:
    """Yield the metrics of the index and of its rebuilds."""
    yield GaugeMetricFamily(
        "mqstore_index_complete",
        "1 while the index has every dispatched message. 0: key queries may miss messages.",
        value=float(store.dispatcher.catch_up.complete),
    )
    yield GaugeMetricFamily(
        "mqstore_index_trouble",
        "1 while the index needs a rebuild: files of it are absent, or it lacks more than "
        "indexCatchUpSize.",
        value=float(store.index_trouble is not None),
    )
    running, last = store.rebuilds.running, store.rebuilds.last
    yield GaugeMetricFamily(
        "mqstore_index_rebuild_running",
        "1 while a job rebuilds the index.",
        value=float(running is not None),
    )
    yield GaugeMetricFamily(
        "mqstore_index_rebuild_items",
        "Index items received from the running rebuild, in complete parts.",
        value=0 if running is None else running.items,
    )
    outcomes = CounterMetricFamily(
        "mqstore_index_rebuilds",
        f"Rebuilds that ended, by outcome: {', '.join(OUTCOMES)}.",
        labels=["outcome"],
    )
    for outcome in OUTCOMES:
        outcomes.add_metric([outcome], store.rebuilds.ended[outcome])
    yield outcomes
    yield GaugeMetricFamily(
        "mqstore_index_rebuild_last_seconds",
        "Seconds that the last finished rebuild took; 0: none yet.",
        value=0 if last is None else last.seconds,
    )
