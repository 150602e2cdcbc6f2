"""The text of metrics with many series."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from mqstore.service import exposition
from mqstore.service.exposition import LabelledFamily, render

LABELS = ("zone", "topic")
VALUES = st.dictionaries(
    st.tuples(st.text(max_size=5), st.text(max_size=5)), st.integers(0, 10**15) | st.floats()
)


class Metrics(Collector):
    def __init__(self, *metrics: Metric) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics


@pytest.mark.parametrize(
    ("kind", "theirs"), [("counter", CounterMetricFamily), ("gauge", GaugeMetricFamily)]
)
@given(values=VALUES)
def test_the_text_is_prometheus_own(
    kind: str,
    theirs: type[CounterMetricFamily] | type[GaugeMetricFamily],
    values: dict[tuple[str, ...], float],
) -> None:
    family = theirs("a_name", "What it counts.", labels=LABELS)
    for labels, value in values.items():
        family.add_metric(labels, value)
    ours = LabelledFamily(kind, "a_name", "What it counts.", LABELS, values)
    assert render(Metrics(ours)) == generate_latest(Metrics(family))
    assert [str(each) for each in ours.samples] == [str(each) for each in family.samples]


def test_other_metrics_are_rendered_too_and_samples_can_be_read() -> None:
    registry = CollectorRegistry()
    ours = LabelledFamily("gauge", "ours", "Ours.", LABELS, {("z", "t"): 7})
    registry.register(Metrics(ours, GaugeMetricFamily("theirs", "Theirs.", value=3)))
    assert registry.get_sample_value("ours", {"zone": "z", "topic": "t"}) == 7
    text = render(registry).decode()
    assert 'ours{topic="t",zone="z"} 7.0\n' in text
    assert "theirs 3.0\n" in text


def test_the_text_of_labels_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    exposition._label_text.cache_clear()
    values: dict[tuple[str, ...], float] = {("z", f"t{n}"): float(n) for n in range(1000)}
    for _ in range(3):
        render(Metrics(LabelledFamily("gauge", "a", "A.", LABELS, values)))
    assert exposition._label_text.cache_info().misses == 1000
