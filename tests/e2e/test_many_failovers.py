"""Leaders are lost again and again under load: times until messages are acknowledged again, as a
table, and a ledger of all messages. `make e2e-failover KILLS=100`."""

from __future__ import annotations

import os
import statistics
import time
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.e2e.cluster import (
    KUBE,
    ClientPod,
    Release,
    is_kube_tool,
    namespace,
    run,
    small_values,
    until,
)
from tests.e2e.replica_state import (
    FAILOVER_MAX_S,
    Loss,
    assert_nothing_is_lost,
    await_another,
    await_replicas,
    delete_pod,
    epoch,
    goes_on,
    leader,
    seconds_until_acknowledged,
    signal,
    stop_process,
)

KILLS: Final = int(os.environ.get("MQSTORE_E2E_KILLS", "4"))
RECOVERED_S: Final = 420.0
"""Longest wait for a lost replica: a container that ends often is restarted after minutes."""
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.nightly,
    pytest.mark.skipif("KUBECONFIG" not in os.environ, reason="needs a cluster; set KUBECONFIG"),
    pytest.mark.timeout(600 + 120 * KILLS),
]


def kill_process(release: Release, pod: str) -> None:
    signal(release, pod, "KILL")


def partition(release: Release, pod: str) -> None:
    """Drop every packet between the pod and other pods or the API server, of open connections too,
    until another replica leads. Probes of the kubelet pass."""
    address = release.get("pod", pod)["status"]["podIP"]
    api_server = ["INPUT", "-s", address, "-p", "tcp", "--dport", "6443"]
    rules = [["FORWARD", "-s", address], ["FORWARD", "-d", address], api_server]
    for rule in rules:
        _packets("-I", rule)
    try:
        await_another(release, pod)
    finally:
        for rule in rules:
            _packets("-D", rule)


def _packets(action: str, rule: list[str]) -> None:
    run(str(KUBE / "enter"), "iptables", "-w", "-t", "mangle", action, *rule, "-j", "DROP")


KINDS: Final[dict[str, Loss]] = {
    "pod deleted by force": delete_pod,
    "kill -9 of store-writer": kill_process,
    "SIGSTOP of store-writer": stop_process,
    "network partition": partition,
}


@pytest.fixture(scope="module")
def replicated() -> Iterator[Release]:
    with namespace() as name:
        release = Release(name, "many", small_values(replicas=3))
        release.install()
        yield release


def test_losses_of_the_leader_lose_nothing_and_are_short(replicated: Release) -> None:
    kinds = list(KINDS) if is_kube_tool() else [each for each in KINDS if "partition" not in each]
    times: dict[str, list[float]] = defaultdict(list)
    client = _load(replicated)
    for number in range(KILLS):
        kind = kinds[number % len(kinds)]
        times[kind].append(_failover_s(replicated, client, KINDS[kind]))
        print(f"{number + 1}: {kind}: {times[kind][-1]:.1f} s", flush=True)
    found = assert_nothing_is_lost(client)
    print(_table(times), f"\n{found['all']} messages, none lost or doubled")
    assert max(max(each) for each in times.values()) < FAILOVER_MAX_S


def _load(release: Release) -> ClientPod:
    await_replicas(release)
    env: dict[str, Any] = {"TOPIC": "many", "DURABILITY": "replicated", "TIMEOUT_S": "1"}
    env |= {"THREADS": "3", "PAUSE_S": "0.02", "INTERVAL_S": "0.02"}
    client = release.client_pod("load", "produce", **env)
    client.says("acked", 50)
    return client


def _failover_s(release: Release, client: ClientPod, lose: Loss) -> float:
    """Lose the leader; seconds until a message was acknowledged, once all is well again."""
    before, pod, lost_ms = epoch(release), leader(release), time.time_ns() // 1_000_000
    lose(release, pod)
    until(lambda: epoch(release) > before, "a replica leads")
    await_replicas(release, patience_s=RECOVERED_S)
    goes_on(client)
    return seconds_until_acknowledged(client, lost_ms)


def _table(times: dict[str, list[float]]) -> str:
    rows = [
        f"| {kind} | {len(each)} | {statistics.median(each):.1f} | {max(each):.1f} |"
        for kind, each in times.items()
    ]
    return "\n".join(
        ["", "| loss of the leader | times | p50 s | worst s |", "|---|---|---|---|", *rows]
    )
