"""Metrics: name, type, labels and help of each, from the services' registries."""

from __future__ import annotations

from prometheus_client import Metric

from docs.generate.markdown import code, table
from docs.generate.services import described

TIMES_OF_PUTS = "rocketmq_brokeruntime_pmdt_"


def metrics(service: str) -> str:
    """The metrics of one service as a table."""
    return table(
        ("metric", "type", "labels", "meaning"),
        (
            (
                code(exported_name(each)),
                each.type,
                " ".join(code(label) for label in labels(each)),
                each.documentation.rstrip(".") + ".",
            )
            for each in described()[service].metrics
        ),
    )


def exported_name(metric: Metric) -> str:
    """The name in queries: a counter's ends with ``_total``."""
    return f"{metric.name}_total" if metric.type == "counter" else metric.name


def labels(metric: Metric) -> list[str]:
    """The labels, those of a metric without samples included."""
    declared = getattr(metric, "_labelnames", ())
    return list(declared) or sorted(
        {key for each in metric.samples for key in each.labels} - {"le"}
    )
