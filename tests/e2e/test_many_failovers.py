"""Leaders are lost again and again under load: times until messages are acknowledged again, as a
table, and a ledger of all messages.

`make e2e-failover KILLS=51 KINDS="delete kill"`: number and kinds of the losses. Ctrl-C ends the
losses early; the table and the ledger are printed in any case.
"""

from __future__ import annotations

import os
import statistics
import time
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

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
    uids,
)

KILLS: Final = int(os.environ.get("MQSTORE_E2E_KILLS", "4"))
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


class Kind(NamedTuple):
    """A kind of loss."""

    title: str
    lose: Loss


KINDS: Final = {
    "delete": Kind("pod deleted by force", delete_pod),
    "kill": Kind("kill -9 of store-writer", kill_process),
    "stop": Kind("SIGSTOP of store-writer", stop_process),
    "partition": Kind("network partition", partition),
}


def wanted_kinds() -> list[Kind]:
    """The kinds that MQSTORE_E2E_KINDS names, by default all that this cluster allows."""
    names = os.environ.get("MQSTORE_E2E_KINDS", "").split()
    if unknown := sorted(set(names) - set(KINDS)):
        raise ValueError(f"no kinds of losses: {', '.join(unknown)}; there are {', '.join(KINDS)}")
    all_here = [name for name in KINDS if name != "partition" or is_kube_tool()]
    return [KINDS[name] for name in names or all_here]


@pytest.fixture(scope="module")
def replicated() -> Iterator[Release]:
    with namespace() as name:
        release = Release(name, "many", small_values(replicas=3))
        release.install()
        yield release


def test_losses_of_the_leader_lose_nothing_and_are_short(replicated: Release) -> None:
    kinds = wanted_kinds()
    times: dict[str, list[float]] = defaultdict(list)
    client = _load(replicated)
    try:
        for number in range(KILLS):
            kind, began = kinds[number % len(kinds)], time.monotonic()
            seconds = _failover_s(replicated, client, kind.lose)
            times[kind.title].append(seconds)
            took = f"{seconds:.1f} s, all in sync after {time.monotonic() - began:.0f} s"
            print(f"{number + 1}: {kind.title}: {took}", flush=True)
    except KeyboardInterrupt:
        print("ended early", flush=True)
    finally:
        print(_table(times), flush=True)
        found = assert_nothing_is_lost(client)
        print(f"{found['all']} messages, none lost or doubled", flush=True)
    assert all(max(each) < FAILOVER_MAX_S for each in times.values())


def _load(release: Release) -> ClientPod:
    await_replicas(release)
    env: dict[str, Any] = {"TOPIC": "many", "DURABILITY": "replicated", "TIMEOUT_S": "1"}
    env |= {"THREADS": "3", "PAUSE_S": "0.02", "INTERVAL_S": "0.02"}
    client = release.client_pod("load", "produce", **env)
    client.says("acked", 50)
    return client


def _failover_s(release: Release, client: ClientPod, lose: Loss) -> float:
    """Lose the leader; seconds until a message was acknowledged. All replicas are in sync then.

    A pod whose container ended is replaced by a new one meanwhile: Kubernetes waits longer before
    each further restart of a container, up to five minutes.
    """
    before, pod, lost_ms = epoch(release), leader(release), time.time_ns() // 1_000_000
    uid = uids(release)[pod]
    lose(release, pod)
    until(lambda: epoch(release) > before and leader(release), "a replica leads")
    goes_on(client)
    seconds = seconds_until_acknowledged(client, lost_ms)
    if uids(release).get(pod) == uid and leader(release) != pod:
        delete_pod(release, pod)
        until(lambda: uids(release).get(pod) not in (None, uid), f"{pod} is a new pod")
    await_replicas(release)
    return seconds


def _table(times: dict[str, list[float]]) -> str:
    rows = [
        f"| {kind} | {len(each)} | {statistics.median(each):.1f} | {max(each):.1f} |"
        for kind, each in times.items()
    ]
    return "\n".join(
        ["", "| loss of the leader | times | p50 s | worst s |", "|---|---|---|---|", *rows]
    )
