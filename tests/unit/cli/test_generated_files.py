"""``mqstore generate``: files that their programs can read, with what the caller chose."""

from __future__ import annotations

import configparser
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from docs.generate.metrics import metric_names
from mqstore.cli.generate import unit_word
from mqstore.cli.main import app
from tests.unit.chart.settings_schema import CHART

ROOT = CHART.parents[1]


def run(*words: str) -> Result:
    return CliRunner().invoke(app, ["generate", *words])


def unit(text: str) -> configparser.RawConfigParser:
    found = configparser.RawConfigParser(strict=False)
    found.optionxform = str  # type: ignore[assignment, method-assign]
    found.read_string(text)
    return found


def test_the_dashboard_is_that_of_the_chart() -> None:
    found = json.loads(run("grafana").stdout)
    assert found == json.loads((CHART / "files" / "dashboard.json").read_text("utf-8"))


def test_alerts_are_rules_of_prometheus_for_the_chosen_series() -> None:
    words = ("--match", 'job="mq"', "--shards", "3", "--runbooks", "https://example.org")
    (group,) = yaml.safe_load(run("alerts", *words).stdout)["groups"]
    rules = {each["alert"]: each for each in group["rules"]}
    listed = json.loads((CHART / "files" / "alerts.json").read_text("utf-8"))
    assert len(rules) == sum(each.get("when") in (None, "coordinator") for each in listed)
    missing = rules["MqstoreShardMissing"]["expr"]
    assert missing == '(count(mqstore_store_open{job="mq"} == 1) or vector(0)) < 3'
    behind = rules["MqstoreFlushBehind"]
    assert behind["expr"].startswith("max by (instance) (")
    assert "{{ $labels.instance }}" in behind["annotations"]["summary"]
    for rule in rules.values():
        assert "$mine" not in rule["expr"] and "$shards" not in rule["expr"]
        assert any(name in rule["expr"] for name in metric_names())
        page = rule["annotations"]["runbook_url"].removeprefix("https://example.org/")
        assert (ROOT / "docs" / page).exists()


def test_alerts_without_a_coordinator_do_not_miss_it() -> None:
    assert "CoordinatorMissing" in run("alerts").stdout
    assert "CoordinatorMissing" not in run("alerts", "--no-coordinator").stdout


def test_a_unit_runs_all_services_over_the_chosen_store() -> None:
    found = unit(run("systemd", "--store", "/data/my store", "--user", "mq").stdout)
    service = found["Service"]
    assert service["ExecStart"].endswith(' run --store "/data/my store"')
    assert (service["User"], service["ReadWritePaths"]) == ("mq", "/data")
    assert service["RestartPreventExitStatus"] == "2"
    assert found["Install"]["WantedBy"] == "multi-user.target"


def test_a_path_that_no_unit_can_hold_is_refused() -> None:
    found = run("systemd", "--store", "/data/a\nb")
    assert (found.exit_code, "name another path" in found.stderr) == (2, True)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("/data/store", "/data/store"),
        ("/data/50%", "/data/50%%"),
        ("/$HOME", "/$$HOME"),
        ('/a "b"', '"/a \\"b\\""'),
        ("/a\\b", '"/a\\\\b"'),
    ],
)
def test_words_of_a_unit_are_escaped(text: str, word: str) -> None:
    assert unit_word(text) == word


def test_compose_runs_the_image_over_a_volume_with_tokens() -> None:
    document: dict[str, Any] = yaml.safe_load(run("compose", "--image", "mq:1").stdout)
    service = document["services"]["mqstore"]
    assert service["image"] == "mq:1"
    assert service["command"][:2] == ["mqstore", "run"]
    assert service["volumes"] == ["store:/var/lib/mqstore", "./tokens:/run/mqstore-tokens:ro"]
    assert service["ports"][0] == "127.0.0.1:8081:8081"
    assert CliRunner().invoke(app, [*service["command"][1:], "--help"]).exit_code == 0


def test_compose_and_units_expand_no_variable_of_a_path() -> None:
    document = yaml.safe_load(run("compose", "--image", "mq:$V", "--tokens", "/a$b").stdout)
    service = document["services"]["mqstore"]
    assert (service["image"], service["volumes"][1]) == ("mq:$$V", "/a$$b:/run/mqstore-tokens:ro")
    found = run("compose", "--tokens", "/a:b")
    assert (found.exit_code, "name another path" in found.stderr) == (2, True)
    service = unit(run("systemd", "--store", "/a$b/store").stdout)["Service"]
    assert service["ExecStart"].endswith(" run --store /a$$b/store")
    assert service["ReadWritePaths"] == "/a$b"  # systemd expands no variable there


def test_the_default_image_is_that_of_this_release() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))
    image = yaml.safe_load(run("compose").stdout)["services"]["mqstore"]["image"]
    assert image == f"mqstore/services:{chart['appVersion']}"
    assert Path(CHART / "values.yaml").exists()
