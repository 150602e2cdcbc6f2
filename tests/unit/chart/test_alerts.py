"""The alerts as Prometheus understands them: promtool, from the PATH or `make prometheus`."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from tests.prometheus_tools import find_tool, needs_prometheus
from tests.unit.chart.test_chart import needs_helm, render

pytestmark = [needs_helm, needs_prometheus]
MINE = 'namespace="default",app_kubernetes_io_instance="shop"'
JOB = 'namespace="default",job_name="shop-mqstore-index-rebuild-%d"'
HEALTHY = {
    f'mqstore_store_open{{{MINE},pod="a"}}': "1x30",
    f'mqstore_open_polls{{{MINE},pod="a"}}': "0x30",
    f'mqstore_coordinator_shard_usable{{{MINE},pod="b",shard="0"}}': "1x30",
    f'mqstore_coordinator_shard_usable{{{MINE},pod="c",shard="0"}}': "0x30",
    f'rocketmq_brokeruntime_commitlog_disk_ratio{{{MINE},pod="a"}}': "0.8x30",
    f'mqstore_replication_in_sync{{{MINE},pod="a"}}': "1x30",
    f"kube_job_created{{{JOB % 1}}}": "0x30",
    f"kube_job_created{{{JOB % 2}}}": "-90000x30",
    f'kube_job_failed{{{JOB % 2},condition="true"}}': "1x30",
    f'mqstore_replication_wanted{{{MINE},pod="a"}}': "1x30",
} | {
    f'mqstore_{metric}{{namespace="{space}",app_kubernetes_io_instance="{name}",pod="z"}}': "1x30"
    for space, name in (("default", "another"), ("another", "shop"))
    for metric in ("store_open", "store_read_only", "open_polls", "coordinator_shard_usable")
}
"""Releases of other names, and in other namespaces, say nothing about this one."""
# What a metric is, and the alert that follows.
BAD = {
    "ShardMissing": ("mqstore_store_open", 'pod="a"', "0x30"),
    "QueryMissing": ("mqstore_open_polls", 'pod="a"', "0x15 stale"),
    "StoreReadOnly": ("mqstore_store_read_only", 'pod="a"', "1x30"),
    "DurableDataMissing": ("mqstore_durable_bytes_missing", 'pod="a"', "65536x30"),
    "OpeningRefused": ("mqstore_openings_refused_total", 'pod="a"', "0+1x30"),
    "DiskRefusesPuts": ("mqstore_puts_refused_disk", 'pod="a"', "1x30"),
    "PutsRefused": ("mqstore_puts_refused", 'pod="a",reason="disk-error"', "1x30"),
    "DiskFilling": ("rocketmq_brokeruntime_commitlog_disk_ratio", 'pod="a"', "0.86x30"),
    "FlushBehind": ("rocketmq_storage_flush_behind_bytes", 'pod="a"', "300000000x30"),
    "DispatchBehind": ("rocketmq_storage_dispatch_behind_bytes", 'pod="a"', "70000000x30"),
    "ReplicasNotEnough": ("mqstore_replication_wanted", 'pod="a"', "2x30"),
    "ReplicaBehind": ("mqstore_replication_lag_seconds", 'pod="a",slave="b"', "61x30"),
    "LogDamaged": ("mqstore_scrub_findings", 'pod="a"', "1x30"),
    "LogRecordLost": ("mqstore_log_repairs_total", 'pod="a",kind="tombstone"', "0+1x30"),
    "IndexNeedsRebuild": ("mqstore_index_trouble", 'pod="a"', "1x30"),
    "ClockStepped": ("mqstore_clock_step_seconds", 'pod="a"', "-86400x30"),
    "DelayedBehind": ("mqstore_delay_behind_seconds", 'pod="a",level="3"', "61x30"),
    "Overloaded": ("mqstore_limit_refused_total", 'pod="a",limit="requests"', "0+9x30"),
    "ConsumerBehind": (
        "rocketmq_consumer_lag_latency",
        'consumer_group="g",topic="t",is_system="false"',
        "700000x30",
    ),
    "ConsumerLostMessages": (
        "mqstore_consumer_expired_unread_total",
        'consumer_group="g",topic="t"',
        "0+3x30",
    ),
    "DeadLetters": ("mqstore_dead_letters", 'pod="a",consumer_group="g"', "2x30"),
    "ExpiryAtRisk": ("mqstore_expiry_at_risk", 'pod="a"', "1x30"),
    "ExpiryDiskFills": ("mqstore_expiry_disk_fills", 'pod="a"', "1x30"),
    "TransactionsStuck": ("mqstore_transactions_oldest_seconds", 'shard="0"', "700x30"),
    "TransactionsSetAside": ("mqstore_transactions_set_aside", 'shard="0"', "1x30"),
    "JobFailed": (
        "kube_job_failed",
        'job_name="shop-mqstore-index-rebuild-1",condition="true"',
        "1x30",
    ),
    "CoordinatorMissing": ("mqstore_coordinator_shard_usable", 'pod="b",shard="0"', "0x30"),
}
FIRING = 'count by (alertname) (ALERTS{alertstate="firing"})'


def _rules() -> Any:
    found = render(monitoring={"rules": {"enabled": True}})
    return found["PrometheusRule"]["shop-mqstore"]["spec"]


def _promtool(directory: Path, *words: str) -> None:
    (directory / "rules.json").write_text(json.dumps(_rules()))
    ran = subprocess.run(
        [str(find_tool("promtool")), *words],
        capture_output=True,
        text=True,
        check=False,
        cwd=directory,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def _firing(values: dict[str, str], *alerts: str) -> dict[str, Any]:
    """A test of promtool's: after 20 minutes of these series these alerts are firing."""
    samples = [{"labels": f'{{alertname="Mqstore{each}"}}', "value": 1} for each in alerts]
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": each} for name, each in values.items()],
        "promql_expr_test": [{"expr": FIRING, "eval_time": "20m", "exp_samples": samples}],
    }


def test_prometheus_takes_the_rules(tmp_path: Path) -> None:
    _promtool(tmp_path, "check", "rules", "--lint=all", "--lint-fatal", "rules.json")


def test_each_alert_fires_by_what_it_is_for_and_by_nothing_else(tmp_path: Path) -> None:
    tests = [_firing(HEALTHY)]
    for alert, (metric, labels, values) in BAD.items():
        tests.append(_firing(HEALTHY | {f"{metric}{{{MINE},{labels}}}": values}, alert))
    document = {"rule_files": ["rules.json"], "evaluation_interval": "1m", "tests": tests}
    (tmp_path / "tests.json").write_text(json.dumps(document))
    _promtool(tmp_path, "test", "rules", "tests.json")


def test_every_alert_is_tried_here() -> None:
    [group] = _rules()["groups"]
    assert {rule["alert"] for rule in group["rules"]} == {f"Mqstore{name}" for name in BAD}
