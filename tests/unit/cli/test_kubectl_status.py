"""``kubectl mqstore status``: a row for each replica, and findings."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from mqstore.cli.kube.kubectl import Kubectl
from mqstore.cli.kube.release import Release, Shard
from mqstore.cli.kube.status import print_status
from mqstore.cli.output import Format, Output
from mqstore.client import Finding

SET = "shop-mqstore-shard-0"
LACK = Finding(
    kind="replicas-not-enough",
    severity="critical",
    shard=0,
    text="1 of 3 replicas are in sync: a",
    page="run-replicas",
)


def pod(number: int, role: str = "follower") -> Shard:
    ready = [{"ready": True, "state": {"running": {}}}] * 2
    status = {"phase": "Running", "containerStatuses": ready}
    return Shard(
        0,
        f"{SET}-{number}",
        {"metadata": {"labels": {"mqstore/role": role}}, "status": status},
    )


@dataclass(frozen=True)
class OfReplicas(Release):
    """One shard of three replicas, of which ``in_sync`` are in sync."""

    in_sync: tuple[int, ...]
    findings: tuple[Finding, ...] = field(default=())

    def shards(self) -> list[Shard]:
        return [pod(0, "leader")]

    def replicas(self, number: int) -> list[Shard]:
        return [pod(0, "leader"), pod(1), pod(2)]

    @contextmanager
    def client(self, shard: Shard) -> Iterator[Any]:
        zero = SimpleNamespace(
            *(),
            health="ready",
            max_offset=0,
            min_offset=0,
            flush_behind=0,
            index_complete=True,
            disk_used=1,
            disk_total=2,
            read_only_reason=None,
        )
        leading = SimpleNamespace(
            in_sync=[f"{SET}-{each}/0a" for each in self.in_sync],
            replicas=[SimpleNamespace(name=f"{SET}-1/0b", lag_bytes=4096)],
        )
        yield SimpleNamespace(
            store=lambda: zero,
            writes=lambda: SimpleNamespace(paused=False, refused=None, taken=True),
            lags=lambda cursor: SimpleNamespace(groups=(), next=None),
            findings=lambda: SimpleNamespace(findings=self.findings),
            replication=lambda: SimpleNamespace(leading=leading),
        )


def release(in_sync: tuple[int, ...], *findings: Finding) -> OfReplicas:
    spec = {"replicas": 3, "selector": {"matchLabels": {"mqstore/shard": "0"}}}
    stateful_set = {"metadata": {"name": SET}, "spec": spec}
    return OfReplicas(Kubectl(), "shop", (stateful_set,), in_sync, findings)


@pytest.mark.parametrize(
    ("in_sync", "findings", "code"),
    [((0, 1, 2), (), 0), ((0,), (), 1), ((0,), (LACK,), 1), ((0, 1, 2), (LACK,), 1)],
)
def test_a_replica_that_is_not_in_sync_is_seen(
    capsys: pytest.CaptureFixture[str],
    in_sync: tuple[int, ...],
    findings: tuple[Finding, ...],
    code: int,
) -> None:
    assert print_status(release(in_sync, *findings), Output(Format.TABLE)) == code
    shown = capsys.readouterr().out
    assert f"{1 - code} of 1 shards are well" in shown
    rows = {line.split()[0]: line for line in shown.splitlines() if line.startswith(SET)}
    assert ("yes" in rows[f"{SET}-1"]) is (1 in in_sync)
    assert "4.0 KiB" in rows[f"{SET}-1"]
    for each in findings:
        assert f"shard 0: {each.text} (how-to/run-replicas)" in shown
