"""Three replicas of a shard as pods: another one leads when the leader is killed or hangs."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.cluster import ClientPod, Release, namespace, small_values, until
from tests.e2e.operators import operator_of

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif("KUBECONFIG" not in os.environ, reason="needs a cluster; set KUBECONFIG"),
    pytest.mark.timeout(600),
]
FAILOVER_MAX_S = 30.0
"""Far above what it takes (docs/reliability.md), as the machine may be busy."""


@pytest.fixture(scope="module")
def replicated() -> Iterator[Release]:
    with namespace() as name:
        release = Release(name, "shop", small_values(replicas=3))
        release.install()
        yield release


def lease(release: Release) -> dict[str, Any]:
    found: dict[str, Any] = release.get("lease", release.shard)
    return found


def leader(release: Release) -> str:
    """The pod that holds the lease."""
    holder = lease(release)["spec"].get("holderIdentity", "")
    return str(holder.partition("/")[0])


def in_sync(release: Release) -> list[str]:
    given = lease(release)["metadata"].get("annotations", {})
    return [name.partition("/")[0] for name in given.get("mqstore/in-sync", "").split()]


def await_replicas(release: Release) -> None:
    """Wait until all three are in sync, and one leads."""
    until(lambda: len(in_sync(release)) == 3 and leader(release), "three replicas are in sync")


def load(release: Release, durability: str = "replicated") -> ClientPod:
    """Start to produce; messages are acknowledged."""
    name = f"load-{uuid.uuid4().hex[:8]}"
    env: dict[str, Any] = {
        "TOPIC": name,
        "DURABILITY": durability,
        "TIMEOUT_S": "2",
        "PAUSE_S": "0.02",
    }
    client = release.client_pod(name, "produce", **env)
    client.says("acked", 50)
    return client


def acked(client: ClientPod) -> int:
    return max(int(line.get("acked", 0)) for line in client.lines())


def await_another(release: Release, former: str) -> None:
    until(lambda: leader(release) not in ("", former), "another replica leads")


def assert_nothing_is_lost(client: ClientPod) -> dict[str, Any]:
    """Every acknowledged message is there once; returns what the client found."""
    client.says("acked", acked(client) + 100)
    client.stop()
    found = client.ends()[-1]
    assert (found["lost"], found["doubled"]) == ([], [])
    return found


def seconds_until_acknowledged(client: ClientPod, since_ms: int) -> float:
    """From a moment to the end of the slowest put after it."""
    slow = [line for line in client.lines() if line.get("endedAtMs", 0) >= since_ms]
    longest = max(slow, key=lambda line: float(line["slow"]), default=None)
    return 0.0 if longest is None else (longest["endedAtMs"] - since_ms) / 1000


def test_a_leader_whose_pod_is_killed_is_replaced_and_returns_as_a_follower(
    replicated: Release,
) -> None:
    await_replicas(replicated)
    client, former = load(replicated), leader(replicated)
    killed_ms = time.time_ns() // 1_000_000
    kill = ("delete", "pod", former, "--wait=false", "--grace-period=0", "--force")
    replicated.kubectl(*kill)
    await_another(replicated, former)
    found = assert_nothing_is_lost(client)
    assert found["slowest"] < FAILOVER_MAX_S
    print("failover after a kill", seconds_until_acknowledged(client, killed_ms))
    await_replicas(replicated)
    assert leader(replicated) != former


@pytest.mark.nightly
def test_a_leader_that_hangs_is_replaced_and_acknowledges_nothing_later(
    replicated: Release,
) -> None:
    await_replicas(replicated)
    client, former = load(replicated), leader(replicated)
    stopped_ms = time.time_ns() // 1_000_000
    stop = ("exec", former, "-c", "store-writer", "--", "sh", "-c", "kill -STOP -1")
    replicated.kubectl(*stop, check=False)
    await_another(replicated, former)
    found = assert_nothing_is_lost(client)
    assert found["slowest"] < FAILOVER_MAX_S
    print("failover after a hang", seconds_until_acknowledged(client, stopped_ms))
    await_replicas(replicated)
    assert leader(replicated) != former


def test_a_hand_over_is_short_and_loses_nothing(replicated: Release, tmp_path: Path) -> None:
    await_replicas(replicated)
    client, former = load(replicated, "sync"), leader(replicated)
    to = next(name for name in in_sync(replicated) if name != former)
    with operator_of(replicated, f"operator-{uuid.uuid4().hex[:6]}", tmp_path) as operator:
        assert f"{to} leads" in operator.does("switchover", "0", "--to", to)
    assert leader(replicated) == to
    found = assert_nothing_is_lost(client)
    print("slowest put over a hand-over", found["slowest"])
    await_replicas(replicated)
