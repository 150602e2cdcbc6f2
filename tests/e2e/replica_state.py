"""The replicas of shard 0 as its Lease names them, and a load whose messages are counted."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from tests.e2e.cluster import ClientPod, Release, until
from tests.e2e.operators import Operator

FAILOVER_MAX_S = 30.0
"""Far above what it takes (docs/reliability.md), as the machine may be busy."""


def lease(release: Release) -> dict[str, Any]:
    found: dict[str, Any] = release.get("lease", release.shard)
    return found


def leader(release: Release) -> str:
    """The pod that holds the lease."""
    holder = lease(release)["spec"].get("holderIdentity", "")
    return str(holder.partition("/")[0])


def epoch(release: Release) -> int:
    return int(lease(release)["spec"]["leaseTransitions"])


def in_sync(release: Release) -> list[str]:
    given = lease(release)["metadata"].get("annotations", {})
    return [name.partition("/")[0] for name in given.get("mqstore/in-sync", "").split()]


def await_replicas(release: Release, count: int = 3, patience_s: float = 120.0) -> None:
    """Wait until so many are in sync, and one leads."""

    def are_in_sync() -> bool:
        return len(in_sync(release)) == count and bool(leader(release))

    until(are_in_sync, f"{count} replicas are in sync", patience_s)


def uids(release: Release) -> dict[str, str]:
    """The present pods of the shard."""
    selector = "app.kubernetes.io/component=shard"
    found = release.get("pods", "-l", selector)["items"]
    return {each["metadata"]["name"]: each["metadata"]["uid"] for each in found}


def load(release: Release, durability: str = "replicated", patience_s: float = 120.0) -> ClientPod:
    """Start to produce; messages are acknowledged."""
    name = f"load-{uuid.uuid4().hex[:8]}"
    env: dict[str, Any] = {
        "TOPIC": name,
        "DURABILITY": durability,
        "TIMEOUT_S": "2",
        "PAUSE_S": "0.02",
        "PATIENCE_S": f"{patience_s:g}",
    }
    client = release.client_pod(name, "produce", **env)
    client.says("acked", 50)
    return client


def acked(client: ClientPod) -> int:
    return max(int(line.get("acked", 0)) for line in client.lines())


def goes_on(client: ClientPod) -> None:
    """Further messages are acknowledged."""
    client.says("acked", acked(client) + 100)


def seconds_until_acknowledged(client: ClientPod, since_ms: int) -> float:
    """From a moment to the end of the longest time without an acknowledgement after it."""
    gaps = [line for line in client.lines() if line.get("endedAtMs", 0) > since_ms]
    longest = max(gaps, key=lambda line: float(line["gap"]), default=None)
    return 0.0 if longest is None else (longest["endedAtMs"] - since_ms) / 1000


Loss = Callable[[Release, str], None]
"""Loses the pod of that name."""


def delete_pod(release: Release, pod: str) -> None:
    """As a node that is gone for its cluster."""
    words = ("--wait=false", "--grace-period=0", "--force")
    release.kubectl("delete", "pod", pod, *words)


def signal(release: Release, pod: str, name: str) -> None:
    """To all processes of store-writer's container but its init."""
    words = ("exec", pod, "-c", "store-writer", "--", "sh", "-c", f"kill -{name} -1")
    release.kubectl(*words, check=False)


def stop_process(release: Release, pod: str) -> None:
    signal(release, pod, "STOP")


def await_another(release: Release, former: str) -> None:
    until(lambda: leader(release) not in ("", former), "another replica leads")


def await_label(operator: Operator, pod: str) -> None:
    """Wait until the plugin finds this pod as the leader's."""
    until(lambda: operator.found().shards()[0].name == pod, f"{pod} is labelled as the leader")


def assert_nothing_is_lost(client: ClientPod) -> dict[str, Any]:
    """Every acknowledged message is there once; returns what the client found."""
    goes_on(client)
    client.stop()
    found = client.ends()[-1]
    assert (found["lost"], found["doubled"]) == ([], [])
    return found
