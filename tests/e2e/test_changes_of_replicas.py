"""A running release gets replicas, fewer of them, and none, while messages are produced."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.e2e.cluster import Release, namespace, small_values, until
from tests.e2e.operators import Operator
from tests.e2e.replica_state import (
    assert_nothing_is_lost,
    await_replicas,
    goes_on,
    in_sync,
    leader,
    load,
    uids,
)

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif("KUBECONFIG" not in os.environ, reason="needs a cluster; set KUBECONFIG"),
    pytest.mark.timeout(900),
]
AWAY_S = 300.0
"""Longest wait of the producer: the shard is stopped from `replicas` until the upgrade is over."""


def volume(release: Release, claim: str) -> str:
    return str(release.get("pvc", claim)["spec"]["volumeName"])


def policy(release: Release, name: str) -> str:
    return str(release.get("pv", name)["spec"]["persistentVolumeReclaimPolicy"])


def change(release: Release, operator: Operator, count: int) -> None:
    """Change the number of replicas from one, or to one."""
    release.values["replicas"] = count
    with pytest.raises(AssertionError, match=f"Run `kubectl mqstore replicas {count}`"):
        release.install()
    assert f"--set replicas={count}" in operator.does("replicas", str(count))
    release.install()


def test_replicas_come_and_go_and_the_first_keeps_its_volume() -> None:
    with namespace() as name:
        release = Release(name, "shop", small_values())
        release.install()
        operator = Operator(Path(os.environ["KUBECONFIG"]), name)
        first = volume(release, f"store-{release.shard}")
        policy_before = policy(release, first)
        client = load(release, "sync", AWAY_S)
        change(release, operator, 3)
        assert volume(release, f"store-{release.shard}-0") == first
        await_replicas(release)
        goes_on(client)
        _remove_the_leader(release, operator)
        goes_on(client)
        change(release, operator, 1)
        assert volume(release, f"store-{release.shard}") == first
        goes_on(client)
        change(release, operator, 3)  # the others find the volumes that they had
        assert volume(release, f"store-{release.shard}-0") == first
        assert policy(release, first) == policy_before
        assert_nothing_is_lost(client)
        await_replicas(release)


def _remove_the_leader(release: Release, operator: Operator) -> None:
    """From three replicas to two, of which the third one leads; the others are not restarted."""
    operator.does("switchover", "0", "--to", gone := f"{release.shard}-2")
    await_replicas(release)
    before = uids(release)
    release.values["replicas"] = 2
    release.install()
    until(lambda: gone not in uids(release), "the third replica is gone")
    until(lambda: leader(release) not in ("", gone), "another one leads")
    until(lambda: gone not in in_sync(release), "it is not in sync")
    del before[gone]
    assert uids(release) == before
    await_replicas(release, 2)
