"""Findings: one list for the console, the commands and the alerts."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest

from mqstore.client import Client, NewMessage, ProblemError, Target
from mqstore.wire.findings import ALERTS
from tests.forked_processes import run_mqstore
from tests.free_ports import free_port
from tests.services.service_processes import service_pair, writer
from tests.services.shard_processes import cluster
from tests.services.test_dead_letters_over_rest import bury
from tests.unit.chart.settings_schema import CHART


def kinds(client: Client) -> list[tuple[str, str, int]]:
    return [(each.kind, each.severity, each.shard) for each in client.findings().findings]


def test_dead_letters_and_a_pause_are_findings_of_every_reader(tmp_path: Path) -> None:
    with service_pair(tmp_path / "store") as pair, pair.client() as client:
        assert kinds(client) == []
        bury(client, "billing", "orders", 3)
        client.put_writes(paused=True, reason="a test")
        found = client.findings().findings
        while len(found) < 2:  # lags are read again after a second
            found = client.findings().findings
        assert [(each.kind, each.text) for each in found] == [
            ("writes-paused", "writes are paused: a test"),
            ("dead-letters", "group billing has 3 dead letters"),
        ]
        urls = ["--writer-url", pair.writer.url, "--query-url", pair.query.url]
        checked = run_mqstore("check", "-o", "json", *urls)
        assert checked.returncode == 1
        rows = {
            each["check"]: each["detail"] for each in map(json.loads, checked.stdout.splitlines())
        }
        assert "group billing has 3 dead letters" in rows["dead-letters"]


def test_delayed_messages_of_a_level_that_the_setting_lacks_are_a_finding(tmp_path: Path) -> None:
    with writer(tmp_path, message_delay_level="1h 1h") as process, Client(process.url) as client:
        client.create_topic("t")
        client.produce("t", [NewMessage(body="x", delay_level=2)])
    with writer(tmp_path, message_delay_level="1h") as process:
        (found,) = httpx.get(f"{process.url}/v1/store/findings").json()["findings"]
    assert found["kind"] == "delays-waiting"
    assert "delay level 2, 1 messages: messageDelayLevel has 1 levels" in found["text"]


@pytest.mark.slow
@pytest.mark.xdist_group("shards")
def test_a_shard_that_does_not_reply_is_a_finding(tmp_path: Path) -> None:
    with cluster(tmp_path, shard_timeout_s=2.0) as shards, shards.client(0) as client:
        assert kinds(client) == []
        shards.shards[1].writer.kill()
        assert kinds(client) == [("shard-missing", "critical", 1)]
        shards.shards[1].query.kill()
        assert kinds(client) == [("shard-missing", "critical", 1)]
        assert client.findings().shards is not None


def test_replicas_that_are_not_in_sync_are_a_finding(tmp_path: Path) -> None:
    """With SYNC_MASTER and default settings no message is acknowledged meanwhile."""
    wanted = tmp_path / "replicas"
    wanted.write_text("2")
    given = {
        "ha_allowed_slaves": "127.0.0.1",
        "replica_name": "a",
        "listen_port": free_port(),
        "ha_listen_port": free_port(),
        "broker_role": "SYNC_MASTER",
        "slave_timeout": 100,
        "replicas_file": wanted,
    }
    with writer(tmp_path / "store", **given) as process:
        with Client(process.url) as client:
            client.create_topic("t")
            with pytest.raises(ProblemError) as refused:
                client.produce("t", [NewMessage(body="x")])
            assert refused.value.status in (503, 504)
            detail = client.health(Target.WRITER).detail
        (found,) = httpx.get(f"{process.url}/v1/store/findings").json()["findings"]
        assert (found["kind"], found["severity"]) == ("replicas-not-enough", "critical")
        assert found["text"] == detail
        assert "1 of 2 replicas are in sync: a; replies to messages wait for another" in detail
        metrics = httpx.get(f"{process.url}/metrics").text
        assert "mqstore_replication_wanted 2.0" in metrics
        wanted.write_text("1")
        assert not httpx.get(f"{process.url}/v1/store/findings").json()["findings"]


def test_each_finding_that_has_an_alert_has_one_of_its_condition() -> None:
    alerts = json.loads((CHART / "files" / "alerts.json").read_text("utf-8"))
    assert set(ALERTS.values()) <= {each["alert"] for each in alerts}
    for kind, alert in ALERTS.items():
        words = "".join(word.capitalize() for word in kind.split("-"))
        assert words == alert, kind
