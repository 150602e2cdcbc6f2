"""The summary of the last expiry report: saved beside the store, served, and published as metrics
and an event.

``store/mqstore/expiry-report.json`` outlives the process, so that metrics keep a risk over
restarts. It is sealed, and may be removed at any time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from mqstore.service.app import Api
from mqstore.service.endpoint import Endpoint
from mqstore.service.events import Events
from mqstore.service.problems import Problem
from mqstore.wire import retention as operations
from mqstore.wire.base import Reply
from mqstore.wire.reports import ExpirySummary
from mqstore.writer.kept_report import KeptReport
from mqstore.writer.service import WriterService

KIND: Final = "expiry"


class ExpiryReportView(Reply):
    """The last summary; null before the first one."""

    report: ExpirySummary | None


class ExpiryReports(Collector):
    """Serves the summary, and collects its metrics. Used on the event loop."""

    def __init__(self, service: WriterService) -> None:
        self._service = service
        self._kept = KeptReport(service, ExpirySummary, lambda paths: paths.expiry_report)

    def add(self, api: Api) -> None:
        """Register the routes and the metrics with ``api``."""
        Endpoint(operations.EXPIRY_REPORT, self.report, documented=ExpiryReportView).add(api)
        put = Endpoint(operations.PUT_EXPIRY_REPORT, self.put_report, documented=ExpiryReportView)
        put.add(api)
        api.metrics.registry.register(self)

    async def report(self) -> ExpiryReportView:
        """The last summary that the expiry report's job sent; null before the first one."""
        return ExpiryReportView(report=self._kept.get())

    async def put_report(self, summary: ExpirySummary) -> ExpiryReportView:
        """Replaces the last summary. Publishes an event `expiry` if messages are at risk."""
        await self._kept.put(summary)
        if summary.at_risk:
            publish(self._service.events, summary)
        return ExpiryReportView(report=summary)

    def collect(self) -> Iterable[Metric]:
        """Yield the metrics of the last summary."""
        try:
            summary = self._kept.get()
        except Problem:  # the store is not open
            summary = None
        yield GaugeMetricFamily(
            "mqstore_expiry_report_seconds",
            "Unix time of the last expiry report; 0: none yet.",
            value=0 if summary is None else summary.made_ms / 1000,
        )
        if summary is not None:
            yield from _of(summary)


def publish(events: Events, summary: ExpirySummary) -> None:
    """Publish the event of a summary with its most urgent risk."""
    first = summary.risks[0] if summary.risks else None
    events.publish(
        KIND,
        atRisk=summary.at_risk,
        risks=len(summary.risks) + summary.risks_more,
        messages=sum(risk.messages for risk in summary.risks),
        firstGoesMs=None if first is None else first.goes_ms,
        group=None if first is None else first.name,
        topic=None if first is None else first.topic,
    )


def _of(summary: ExpirySummary) -> Iterable[Metric]:
    yield GaugeMetricFamily(
        "mqstore_expiry_at_risk",
        "1 if the last expiry report says that a reader will lose messages.",
        value=float(summary.at_risk),
    )
    yield GaugeMetricFamily(
        "mqstore_expiry_disk_fills",
        "1 if the last expiry report says that the disk will pass a level at which the oldest"
        " messages are deleted, or messages are refused.",
        value=float(summary.disk_fills),
    )
    labels = ["horizon_hours"]
    messages = GaugeMetricFamily(
        "mqstore_expiry_messages",
        "Messages that retention deletes within horizon_hours.",
        labels=labels,
    )
    size = GaugeMetricFamily(
        "mqstore_expiry_bytes",
        "Bytes of log that retention deletes within horizon_hours.",
        labels=labels,
    )
    lost = GaugeMetricFamily(
        "mqstore_expiry_lost_messages",
        "Messages deleted within horizon_hours before a reader has read them.",
        labels=labels,
    )
    for each in summary.expiring:
        if each.is_in_force:
            messages.add_metric([str(each.horizon_hours)], each.messages)
            size.add_metric([str(each.horizon_hours)], each.bytes)
            lost.add_metric([str(each.horizon_hours)], each.lost)
    yield messages
    yield size
    yield lost
    risks = GaugeMetricFamily(
        "mqstore_expiry_risk_messages",
        "Messages of the most urgent risks, by kind (group, half, delay), name and topic.",
        labels=["kind", "name", "topic"],
    )
    messages_by_risk = {(risk.kind, risk.name, risk.topic): risk.messages for risk in summary.risks}
    for key, count in messages_by_risk.items():
        risks.add_metric(list(key), count)
    yield risks
