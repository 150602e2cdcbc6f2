"""The Grafana dashboard: its panels go by metrics and labels that there are, and name pages.

tests/services/test_dashboard_with_data.py evaluates its queries over running services.
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
from grafana_foundation_sdk.cog import plugins
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

from charts.dashboard.__main__ import FILE, ROWS, dashboard
from charts.dashboard.panels import PODS, RELEASE
from docs.generate.metrics import exported_name, labels, metrics_of
from docs.generate.services import NAMES
from tests.prometheus_tools import find_tool, needs_prometheus
from tests.unit.chart.test_chart import EVERYTHING, ROOT, goes_by_metrics_of, needs_helm, render

SHOWN: Final[dict[str, Any]] = json.loads(FILE.read_text("utf-8"))
PANELS: Final = [each for each in SHOWN["panels"] if each["type"] != "row"]
TARGETS: Final = [(panel, target) for panel in PANELS for target in panel["targets"]]
OF_SCRAPES: Final = {"shard", "pod", "container", "le"}
"""Labels that the ServiceMonitor sets, and that of the buckets of a histogram."""
OF_CLUSTER: Final = {"cronjob", "job_name"}
"""Labels of kube-state-metrics."""
MANY: Final = {"topic", "consumer_group", "route", "problem"}
"""Labels with values without number."""


def test_the_file_is_made_from_its_source() -> None:
    assert FILE.read_text("utf-8") == dashboard(), "run python -m charts.dashboard"


def test_grafanas_models_have_every_field_of_the_file() -> None:
    """A field that Grafana's schema lacks is lost when its models read the file."""
    plugins.register_default_plugins()
    text = FILE.read_text("utf-8")
    read = json.dumps(Dashboard.from_json(json.loads(text)), cls=JSONEncoder)
    assert _without_empty(read) == _without_empty(text)


def _without_empty(text: str) -> Any:
    """Read JSON without its empty objects."""
    return json.loads(text, object_hook=lambda each: {k: v for k, v in each.items() if v != {}})


@needs_helm
def test_the_chart_installs_the_dashboard() -> None:
    installed = render(**EVERYTHING)["ConfigMap"]["shop-mqstore-dashboard"]["data"]["mqstore.json"]
    assert json.loads(installed) == SHOWN


@needs_helm
@pytest.mark.parametrize(
    ("pod", "shard"),
    [
        ("shop-mqstore-shard-3", "3"),
        ("shop-mqstore-shard-12-0", "12"),
        ("my-shard-7-mqstore-shard-0-2", "0"),
    ],
)
def test_the_service_monitor_labels_series_with_the_shard(pod: str, shard: str) -> None:
    endpoints = render(**EVERYTHING)["ServiceMonitor"]["shop-mqstore"]["spec"]["endpoints"]
    relabelings = {each["port"]: each.get("relabelings", []) for each in endpoints}
    assert relabelings["coordinator"] == []
    for port in ("writer", "query"):
        (rule,) = relabelings[port]
        assert rule["targetLabel"] == "shard"
        found = re.fullmatch(rule["regex"], pod)
        assert found is not None and found[1] == shard


def test_queries_go_by_metrics_and_labels_that_there_are() -> None:
    known = {exported_name(each): set(labels(each)) for name in NAMES for each in metrics_of(name)}
    for panel, target in TARGETS:
        expression = target["expr"]
        names = re.findall(r"\b((?:mqstore|rocketmq|process|kube)_\w+)\{([^}]*)\}", expression)
        assert names, panel["title"]
        allowed = set(OF_SCRAPES)
        for name, matchers in names:
            if name.startswith("kube_"):
                allowed |= OF_CLUSTER
                continue
            assert matchers.startswith(RELEASE), expression
            allowed |= known[name.removesuffix("_bucket")]
            own = matchers.removeprefix(PODS).removeprefix(RELEASE)
            assert set(re.findall(r"(\w+)[=!]", own)) <= allowed, expression
        for listed in re.findall(r"(?:by|ignoring) \(([^)]*)\)", expression):
            assert set(listed.split(", ")) <= allowed | {"bound"}, expression
        if "kube_" not in expression and "process_" not in expression:
            goes_by_metrics_of(expression, RELEASE)


def test_a_panel_shows_at_most_20_series_of_labels_with_many_values() -> None:
    for _, target in TARGETS:
        if MANY & set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])):
            assert target["expr"].startswith("topk(20, "), target["expr"]


def test_each_panel_says_what_it_shows_and_what_to_do() -> None:
    titles = [each["title"] for each in PANELS]
    assert len(set(titles)) == len(titles)
    for panel in PANELS:
        assert len(panel["description"]) > 40
        for page in re.findall(r"docs/[\w/.-]+\.md", panel["description"]):
            assert (ROOT / page).is_file(), page
        defaults = panel["fieldConfig"]["defaults"]
        assert defaults.get("unit") or panel["options"]["yAxis"]["unit"]
        assert all(target["legendFormat"] for target in panel["targets"])


def test_there_is_a_row_for_each_subject_and_panels_lie_side_by_side() -> None:
    assert [each["title"] for each in SHOWN["panels"] if each["type"] == "row"] == list(ROWS)
    cells = [
        (place["x"] + right, place["y"] + down)
        for place in (each["gridPos"] for each in SHOWN["panels"])
        for right in range(place["w"])
        for down in range(place["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) == 23
    assert len({each["id"] for each in SHOWN["panels"]}) == len(SHOWN["panels"])


def test_a_release_its_shards_and_pods_can_be_chosen() -> None:
    variables = [each["name"] for each in SHOWN["templating"]["list"]]
    assert variables == ["source", "namespace", "release", "shard", "pod"]


# What series are, and what a query of a panel returns after 10 hours.
MINE: Final = 'namespace="n",app_kubernetes_io_instance="r",shard="0"'
FIRST_TRIES: Final = 'is_system="false",is_retry="false"'
COMPUTED: Final = (
    (
        ("Time until a volume is full", 1),
        {f'rocketmq_brokeruntime_commitlog_disk_ratio{{{MINE},pod="a"}}': "0.5+0.01x10"},
        25 * 3600,  # from 60 % to 85 % at 1 % an hour
    ),
    (
        ("Volume used in 24 hours", 0),
        {f'rocketmq_brokeruntime_commitlog_disk_ratio{{{MINE},pod="a"}}': "0.5+0.01x10"},
        0.84,
    ),
    (
        ("Time until a volume is full", 0),
        {f'rocketmq_brokeruntime_commitlog_disk_ratio{{{MINE},pod="a"}}': "0.5x10"},
        365 * 24 * 3600,
    ),
    (
        ("Stores that are closed", 0),
        {
            f'mqstore_store_open{{{MINE},pod="a"}}': "1x10",
            f'mqstore_store_open{{{MINE},pod="b"}}': "0x10",
        },
        1,
    ),
    (
        ("Messages of groups, by state", 0),
        {
            f'rocketmq_consumer_lag_messages{{{MINE},pod="a",{FIRST_TRIES}}}': "7x10",
            f'rocketmq_consumer_lag_messages{{{MINE},pod="b",{FIRST_TRIES}}}': "6x10",
            f'rocketmq_consumer_inflight_messages{{{MINE},pod="a",{FIRST_TRIES}}}': "2x10",
        },
        5,
    ),
)


@needs_prometheus
def test_computed_values_are_right(tmp_path: Path) -> None:
    expressions = {panel["title"]: panel["targets"] for panel in PANELS}
    chosen = {"$namespace": "n", "$release": "r", "$shard": ".*", "$pod": ".*"}
    tests = []
    for (title, number), series, value in COMPUTED:
        expression = expressions[title][number]["expr"]
        for name, choice in chosen.items():
            expression = expression.replace(name, choice)
        query = {
            "expr": f"round({expression}, 0.0001)",
            "eval_time": "10h",
            "exp_samples": [{"labels": "{}", "value": value}],
        }
        values = [{"series": name, "values": each} for name, each in series.items()]
        tests.append({"interval": "1h", "input_series": values, "promql_expr_test": [query]})
    (tmp_path / "tests.json").write_text(json.dumps({"tests": tests}))
    command = [str(find_tool("promtool")), "test", "rules", "tests.json"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr
