"""The Grafana dashboard's queries over a real Prometheus that scrapes running services.

Grafana itself does not run here: its licence does not let it be a dependency. Each panel's queries
are evaluated as Grafana evaluates them, with variables filled in, at the panel's interval.
"""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from playwright.sync_api import Browser

from tests.prometheus_tools import find_tool, needs_prometheus
from tests.services.dashboard_load import Release, loaded_release
from tests.services.dashboard_page import draw
from tests.services.prometheus_server import SCRAPE_S, Prometheus, Series, prometheus
from tests.services.service_processes import REPOSITORY

pytestmark = [pytest.mark.slow, needs_prometheus, pytest.mark.xdist_group("dashboard")]

DASHBOARD: Final[dict[str, Any]] = json.loads(
    (REPOSITORY / "charts/mqstore/files/dashboard.json").read_text("utf-8")
)
PANELS: Final = [each for each in DASHBOARD["panels"] if each["type"] != "row"]
PAGE: Final = REPOSITORY / "docs/how-to/monitor-the-services.md"
CHOSEN: Final = {"namespace": "default", "release": "mqstore", "shard": ".*", "pod": ".*"}
PATIENCE_S: Final = 90.0
RECORDED: Final = """\
kube_cronjob_status_last_successful_time{namespace="default",cronjob="mqstore-backup-0"} 1.7e9
kube_job_status_failed{namespace="default",job_name="mqstore-backup-0-29000000"} 1
"""
"""Samples of kube-state-metrics about the chart's CronJobs; it needs a cluster."""
RECORDED_PANELS: Final = {"Time since the last success, by CronJob", "Failed jobs"}

STATES: Final[dict[str, dict[str, float]]] = {
    "Stores that are closed A": {"": 0},
    "Index of keys A": {"": 0},
    "Messages of groups, by state B": {"": 2},
    "Retries, by group B": {"billing": 1},
    "Dead letters, by group A": {"billing": 1},
    "Expiring unread A": {"24": 3713},
    "Set aside, by shard A": {"0": 0, "1": 0},
    "Copies in sync A": {"mqstore-1-0": 2},
    "Epoch of the log A": {"mqstore-0": 0, "mqstore-1-0": 1, "mqstore-1-1": 1},
    "Followers A": {"mqstore-0": 0, "mqstore-1-0": 0, "mqstore-1-1": 1},
    "Leases of the log A": {"mqstore-0": 1, "mqstore-1-0": 0, "mqstore-1-1": 0},
    "Failed jobs A": {"mqstore-backup-0-29000000": 1},
}
"""Values of queries, by the values of their labels."""


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Release]:
    with loaded_release(tmp_path_factory.mktemp("release")) as found:
        yield found


@pytest.fixture(scope="module")
def server(release: Release, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Scrapes the release as docs/how-to/monitor-the-services.md says."""
    directory = tmp_path_factory.mktemp("prometheus") / "prometheus"
    with (
        _recorded_exposition() as address,
        prometheus(directory, [*_documented_jobs(release), _job("cluster", address)]) as found,
    ):
        yield found


def test_every_query_of_every_panel_returns_numbers(server: Prometheus) -> None:
    waiting = {(panel["title"], each["refId"]) for panel in PANELS for each in panel["targets"]}
    deadline = time.monotonic() + PATIENCE_S
    while waiting:
        for panel in PANELS:
            for target in panel["targets"]:
                if (panel["title"], target["refId"]) in waiting and _has_data(
                    server, panel, target
                ):
                    waiting.remove((panel["title"], target["refId"]))
        assert not waiting or time.monotonic() < deadline, sorted(waiting)
        time.sleep(SCRAPE_S)


def test_panels_show_the_states_of_the_release(server: Prometheus) -> None:
    found = {
        f"{panel['title']} {each['refId']}": _last_values(server, each["expr"])
        for panel in PANELS
        for each in panel["targets"]
    }
    assert {each: found[each] for each in STATES} == STATES


@pytest.mark.browser
def test_every_panel_is_drawn(server: Prometheus, browser: Browser, tmp_path: Path) -> None:
    """By a page of our own, which is not Grafana; build/dashboard.png keeps the picture."""

    end_s = time.time()

    def series_of(target: dict[str, Any]) -> list[Series]:
        expression = _filled(target["expr"], CHOSEN, step_s=5)
        return server.query(expression, seconds=120, step_s=2, end_s=end_s)

    picture = tmp_path / "dashboard.png"
    drawn = draw(browser, DASHBOARD["panels"], series_of, picture)
    assert drawn == [each["title"] for each in PANELS]
    (REPOSITORY / "build").mkdir(exist_ok=True)
    picture.replace(REPOSITORY / "build" / "dashboard.png")


def test_one_shard_and_one_pod_can_be_chosen(server: Prometheus) -> None:
    for panel in PANELS:
        for target in panel["targets"]:
            one = CHOSEN | {"shard": "(0)", "pod": "(mqstore-0)"}
            server.query(_filled(target["expr"], one), seconds=30, step_s=30)


def test_variables_have_values(server: Prometheus) -> None:
    found = {}
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            match = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"])
            assert match is not None
            found[variable["name"]] = server.label_values(_filled(match[1], CHOSEN), match[2])
    assert found == {
        "namespace": ["default"],
        "release": ["mqstore"],
        "shard": ["0", "1"],
        "pod": ["coordinator", "mqstore-0", "mqstore-1-0", "mqstore-1-1"],
    }


def test_prometheus_accepts_the_documented_configuration(tmp_path: Path) -> None:
    (tmp_path / "prometheus.yml").write_text(_documented_configuration())
    command = [str(find_tool("promtool")), "check", "config", "prometheus.yml"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_only_panels_of_a_cluster_have_recorded_data() -> None:
    assert {
        panel["title"]
        for panel in PANELS
        if any("kube_" in target["expr"] for target in panel["targets"])
    } == RECORDED_PANELS


def _has_data(server: Prometheus, panel: dict[str, Any], target: dict[str, Any]) -> bool:
    """Whether there is a finite number, and a series for the labels of the legend."""
    step_s = int(panel["interval"].removesuffix("s"))
    found = server.query(_filled(target["expr"], CHOSEN, step_s), seconds=step_s, step_s=step_s)
    labels = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
    return any(labels <= each.labels.keys() for each in found)


def _last_values(server: Prometheus, expression: str) -> dict[str, float]:
    """The last value of each series, by the values of its labels."""
    found = server.query(_filled(expression, CHOSEN), seconds=0, step_s=1)
    return {" ".join(each.labels.values()): each.points[-1][1] for each in found}


def _filled(expression: str, chosen: dict[str, str], step_s: int = 30) -> str:
    """Fill in variables as Grafana does."""
    rate_interval_s = max(step_s + SCRAPE_S, 4 * SCRAPE_S)
    filled = expression.replace("$__rate_interval", f"{rate_interval_s}s")
    for name, value in chosen.items():
        filled = filled.replace(f"${name}", value)
    assert "$" not in filled
    return filled


def _documented_configuration() -> str:
    (block,) = re.findall(r"```yaml\n(scrape_configs:.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    return str(block)


def _documented_jobs(release: Release) -> list[dict[str, Any]]:
    """The how-to page's scrape configuration with the addresses of the release, and its replicas
    as two more pods."""
    block, run = _documented_configuration(), release.run
    for port, url in ((8081, run.writer_url), (8082, run.query_url), (8083, run.coordinator_url)):
        block = block.replace(f"localhost:{port}", _address(url))
    jobs: list[dict[str, Any]] = yaml.safe_load(block)["scrape_configs"]
    (writer, *_) = jobs[0]["static_configs"]
    for each in release.replicas.replicas:
        assert each.process is not None
        labels = writer["labels"] | {"shard": "1", "pod": f"mqstore-1-{each.number}"}
        jobs[0]["static_configs"].append(
            {"targets": [_address(each.process.url)], "labels": labels}
        )
    return jobs


def _job(name: str, address: str) -> dict[str, Any]:
    return {"job_name": name, "static_configs": [{"targets": [address]}], "honor_labels": True}


def _address(url: str) -> str:
    return url.removeprefix("http://")


class _Recorded(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write(RECORDED.encode())

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


@contextlib.contextmanager
def _recorded_exposition() -> Iterator[str]:
    """Serve RECORDED; yields its address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Recorded) as served:
        thread = threading.Thread(target=served.serve_forever, args=(0.01,))
        thread.start()
        yield f"127.0.0.1:{served.server_address[1]}"
        served.shutdown()
        thread.join()
