"""Three replicas of a shard as pods: another one leads when the leader is killed or hangs."""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.e2e.cluster import Release, namespace, small_values, until
from tests.e2e.operators import Operator, operator_of
from tests.e2e.replica_state import (
    FAILOVER_MAX_S,
    Loss,
    assert_nothing_is_lost,
    await_another,
    await_label,
    await_replicas,
    delete_pod,
    epoch,
    in_sync,
    leader,
    load,
    seconds_until_acknowledged,
    stop_process,
    uids,
)

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif("KUBECONFIG" not in os.environ, reason="needs a cluster; set KUBECONFIG"),
    pytest.mark.timeout(600),
]


@pytest.fixture(scope="module")
def replicated() -> Iterator[Release]:
    with namespace() as name:
        release = Release(name, "shop", small_values(replicas=3))
        release.install()
        yield release


def lose_leader(release: Release, lose: Loss) -> None:
    """Lose the leader under load: another one leads soon, and no message is lost."""
    await_replicas(release)
    client, former = load(release), leader(release)
    lost_ms = time.time_ns() // 1_000_000
    lose(release, former)
    await_another(release, former)
    found = assert_nothing_is_lost(client)
    assert found["slowest"] < FAILOVER_MAX_S
    print("failover", seconds_until_acknowledged(client, lost_ms))
    await_replicas(release)
    assert leader(release) != former


def test_a_leader_whose_pod_is_killed_is_replaced_and_returns_as_a_follower(
    replicated: Release,
) -> None:
    lose_leader(replicated, delete_pod)


@pytest.mark.nightly
def test_a_leader_that_hangs_is_replaced_and_acknowledges_nothing_later(
    replicated: Release,
) -> None:
    lose_leader(replicated, stop_process)


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


def test_status_is_no_success_while_replicas_hang(replicated: Release, tmp_path: Path) -> None:
    await_replicas(replicated)
    hanging = uids(replicated).keys() - {leader(replicated)}
    with operator_of(replicated, f"operator-{uuid.uuid4().hex[:6]}", tmp_path) as operator:
        until(lambda: operator("status").returncode == 0, "status is a success")

        def out_of_sync() -> set[str]:
            ran = operator("status", "-o", "json")
            found = json.loads(ran.stdout or "{}").get("replicas", ())
            named = {each["pod"] for each in found if each["inSync"] is False}
            return named if ran.returncode == 1 else set()

        for each in hanging:
            stop_process(replicated, each)
        until(lambda: out_of_sync() == hanging, "status names the replicas that hang")
        await_replicas(replicated)
        until(lambda: operator("status").returncode == 0, "status is a success again")


def test_an_upgrade_restarts_each_replica_and_loses_nothing(replicated: Release) -> None:
    await_replicas(replicated)
    client, before, first_epoch = load(replicated), uids(replicated), epoch(replicated)
    replicated.values["store"] = replicated.values["store"] | {"fileReservedTime": 71}
    replicated.install()
    after = uids(replicated)
    assert after.keys() == before.keys()
    assert not set(after.values()) & set(before.values())
    found = assert_nothing_is_lost(client)
    assert found["slowest"] < FAILOVER_MAX_S
    changes = epoch(replicated) - first_epoch
    print(f"slowest put over an upgrade: {found['slowest']:.1f} s, {changes} changes of the leader")
    await_replicas(replicated)


def test_events_of_a_shard_are_on_the_pod_of_its_leader(replicated: Release) -> None:
    operator = Operator(Path(os.environ["KUBECONFIG"]), replicated.namespace)
    await_replicas(replicated)
    former = leader(replicated)
    for to in (None, next(name for name in in_sync(replicated) if name != former)):
        if to is not None:
            operator.does("switchover", "0", "--to", to)
        await_label(operator, pod := to or former)
        operator.does("pause", "--reason", f"a test of {pod}")
        operator.does("resume")
        until(partial(_is_event_of, replicated, pod), f"an Event is on {pod}")
    await_replicas(replicated)


def _is_event_of(release: Release, pod: str) -> bool:
    uid = release.get("pod", pod)["metadata"]["uid"]
    selector = f"--field-selector=source=mqstore,involvedObject.name={pod}"
    found = release.get("events", selector)["items"]
    return any(
        each["involvedObject"].get("uid") == uid and f"a test of {pod}" in each["message"]
        for each in found
    )
