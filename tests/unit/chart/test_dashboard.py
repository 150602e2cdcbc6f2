"""The Grafana dashboard: its panels go by metrics that there are, and lie side by side."""

from __future__ import annotations

import json

from tests.unit.chart.settings_schema import CHART
from tests.unit.chart.test_chart import EVERYTHING, goes_by_metrics_of, needs_helm, render


@needs_helm
def test_panels_go_by_metrics_that_there_are() -> None:
    shown = render(**EVERYTHING)["ConfigMap"]["shop-mqstore-dashboard"]["data"]["mqstore.json"]
    dashboard = json.loads(shown)
    panels = dashboard["panels"]
    expressions = [target["expr"] for panel in panels for target in panel.get("targets", ())]
    assert len(expressions) >= 10
    for expression in expressions:
        mine = 'namespace="$namespace",app_kubernetes_io_instance="$release"'
        goes_by_metrics_of(expression, mine)
    variables = {each["name"] for each in dashboard["templating"]["list"]}
    assert variables == {"source", "namespace", "release"}


def test_panels_lie_side_by_side_and_the_last_rows_are_of_consumers_and_replicas() -> None:
    panels = json.loads((CHART / "files" / "dashboard.json").read_text("utf-8"))["panels"]
    assert len({each["id"] for each in panels}) == len(panels)
    cells = [
        (place["x"] + right, place["y"] + down)
        for place in (each["gridPos"] for each in panels)
        for right in range(place["w"])
        for down in range(place["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) == 23
    start, end = [n for n, each in enumerate(panels) if each["type"] == "row"]
    assert (panels[start]["title"], panels[end]["title"]) == ("Consumers", "Replicas")
    row = panels[start + 1 : end]
    shown = " ".join(target["expr"] for each in row for target in each["targets"])
    for metric in (
        "rocketmq_consumer_lag_messages",
        "rocketmq_consumer_inflight_messages",
        "mqstore_consumer_delayed_messages",
        "mqstore_dead_letters",
    ):
        assert metric in shown
    for each in row:
        for target in each["targets"]:
            goes_by_metrics_of(
                target["expr"], 'namespace="$namespace",app_kubernetes_io_instance="$release"'
            )
