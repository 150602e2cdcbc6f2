"""Events of a shard's store appear as Kubernetes Events on its pod."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mqstore.wire.examples.reports import EXPIRY as EXAMPLE
from tests.e2e.cluster import Release, run, until
from tests.services.transaction_shard import Shard, shard_at

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif("KUBECONFIG" not in os.environ, reason="needs a cluster; set KUBECONFIG"),
    pytest.mark.timeout(600),
]
NAMESPACE = "default"


def _events(pod: str) -> list[dict[str, Any]]:
    """Ours on a pod of NAMESPACE, as they came."""
    selector = f"--field-selector=source=mqstore,involvedObject.name={pod}"
    found = run("kubectl", "-n", NAMESPACE, "get", "events", selector, "-o", "json")
    items: list[dict[str, Any]] = json.loads(found)["items"]
    return sorted(items, key=lambda each: str(each["metadata"]["resourceVersion"]))


def _reasons(pod: str) -> list[tuple[str, int]]:
    return sorted((each["reason"], each["count"]) for each in _events(pod))


@pytest.fixture
def stateful_set() -> Iterator[str]:
    """The name of one whose pod 0 is there, and waits for a node for ever."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    container = {"name": "c", "image": "no-registry/image:1"}
    spec = {"containers": [container], "nodeSelector": {"mqstore/no": "node"}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"{name}-0"}, "spec": spec}
    run("kubectl", "-n", NAMESPACE, "create", "-f", "-", given=json.dumps(pod))
    yield name
    run("kubectl", "-n", NAMESPACE, "delete", "pod", f"{name}-0", "--wait=false")


def test_two_coordinators_write_each_event_once_and_one_goes_on_alone(
    tmp_path: Path, stateful_set: str
) -> None:
    pod = f"{stateful_set}-0"
    events_on_pods = {
        "shard_namespace": NAMESPACE,
        "shard_stateful_set": stateful_set,
    }
    with (
        shard_at(tmp_path) as shard,
        shard.coordinator(**events_on_pods) as old,
        shard.coordinator(**events_on_pods),
    ):
        shard.client.put_expiry_report(EXAMPLE)
        _pause_and_resume(shard, "one")
        once = [("RecoveryFinished", 1), ("UnconsumedAtRisk", 1)]
        expected = [*once, ("WritesPaused", 1), ("WritesResumed", 1)]
        until(lambda: _reasons(pod) == expected, "each event is written")
        old.process.kill()
        _pause_and_resume(shard, "two")
        expected = [*once, ("WritesPaused", 2), ("WritesResumed", 2)]
        until(lambda: _reasons(pod) == expected, "the other one goes on")
    [paused] = [each for each in _events(pod) if each["reason"] == "WritesPaused"]
    assert paused["message"].endswith(": two")
    uid = json.loads(run("kubectl", "-n", NAMESPACE, "get", "pod", pod, "-o", "json"))
    assert paused["involvedObject"]["uid"] == uid["metadata"]["uid"]


def _pause_and_resume(shard: Shard, reason: str) -> None:
    """Each seen as an event of the store, which looks once a second."""
    last = [*shard.client.events(seconds=0)][-1].id
    for paused in (True, False):
        shard.client.put_writes(paused=paused, reason=reason)
        last = next(each.id for each in shard.client.events(after=last) if each.kind == "writes")


def test_a_recovery_is_an_event_of_the_pod_that_was_killed(release: Release) -> None:
    release.kill_writer()
    line = until(lambda: _finished(release), "kubectl describe shows the recovery")
    assert "nothing was cut" in line
    until(release.is_ready, "the pod is ready")


def _finished(release: Release) -> str:
    """The line of the last container's start."""
    said = release.kubectl("describe", "pod", release.shard)
    lines = [line for line in said.splitlines() if "RecoveryFinished" in line]
    return lines[-1] if release.restarts("store-writer") and len(lines) > 1 else ""
