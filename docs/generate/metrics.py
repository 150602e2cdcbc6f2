"""Metrics: name, type, labels and help of each, from the services' registries."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from prometheus_client import Metric

from docs.generate.markdown import code, table
from docs.generate.services import NAMES, described

COMMON: Final = "common"
"""Stands for the metrics that every service has."""
CONSTANT_LABELS: Final = frozenset(
    {"cluster", "node_type", "node_id", "protocol_type", "storage_type", "storage_medium"}
)
"""Labels of metrics with RocketMQ's names, each with one value in a process."""
PUT_TIMES: Final = "rocketmq_brokeruntime_pmdt_"
"""The beginning of the names of the distribution of put times, which is one row."""


def metrics(of: str) -> str:
    """The metrics of one service beyond the common ones, or the common ones, as a table."""
    common = set.intersection(*({each.name for each in metrics_of(name)} for name in NAMES))
    if of == COMMON:
        found = [each for each in metrics_of(NAMES[0]) if each.name in common]
    else:
        found = [each for each in metrics_of(of) if each.name not in common]
    times = [each for each in found if each.name.startswith(PUT_TIMES)]
    return table(
        ("metric", "type", "labels", "meaning"),
        (_row(each, times) for each in found if each not in times[1:]),
    )


def metrics_of(service: str) -> Sequence[Metric]:
    """Every metric of a service."""
    return described()[service].metrics


def metric_names() -> set[str]:
    """The names of the metrics of all services, as queries use them."""
    return {exported_name(each) for name in NAMES for each in metrics_of(name)}


def exported_name(metric: Metric) -> str:
    """The name in queries: a counter's ends with ``_total``."""
    return f"{metric.name}_total" if metric.type == "counter" else metric.name


def labels(metric: Metric) -> list[str]:
    """The labels, those of a metric without samples included; not constant ones."""
    declared: Iterable[str] = getattr(metric, "_labelnames", ()) or sorted(
        {key for each in metric.samples for key in each.labels} - {"le"}
    )
    return [each for each in declared if each not in CONSTANT_LABELS]


def _row(metric: Metric, times: Sequence[Metric]) -> tuple[str, str, str, str]:
    name = code(exported_name(metric))
    if metric in times:
        name = f"{name} to {code(exported_name(times[-1]))}"
    described_labels = " ".join(code(label) for label in labels(metric))
    return name, metric.type, described_labels, metric.documentation
