"""Shards are added, fail to start, are removed by force and return, under load by unique keys."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from mqstore.client import NewMessage
from tests.e2e.cluster import ClientPod, Release, namespace, small_values, until
from tests.e2e.operators import Operator, operator_of

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif("KUBECONFIG" not in os.environ, reason="needs a cluster; set KUBECONFIG"),
    pytest.mark.timeout(1200),
]

UNAVAILABLE_MOST_S = 10
PROPAGATED_S = 240.0
"""The kubelet takes one or two minutes to update the list."""


def test_no_client_notices_that_shards_are_added_and_removed(tmp_path: Path) -> None:
    with namespace() as name:
        release = Release(name, "grows", small_values())
        release.install()
        load = release.client_pod("load", "over_shards")
        load.says("committed", 20)
        with operator_of(release, "scaler", tmp_path) as operator:
            _add_two_of_which_one_cannot_start(release, operator, load)
            _remove_by_force(release, operator, load)
            _add_again(release, operator, load)
            _produce_from_outside(operator)
        load.stop()
        lines = load.ends()
    found = lines[-1]
    assert [line for line in lines if "final" in line] == []
    assert (found["lost"], found["doubled"]) == ([], [])
    assert found["slowest"] < UNAVAILABLE_MOST_S, found
    assert found["all"] > 500


def _add_two_of_which_one_cannot_start(
    release: Release, operator: Operator, load: ClientPod
) -> None:
    """The claim of the third one is refused by a quota, so only the second one gets keys. Claims
    are made in any order, so the third one is added once the second has its claim."""
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "claims"},
        "spec": {"hard": {"persistentvolumeclaims": "2"}},
    }
    release.kubectl("create", "-f", "-", given=json.dumps(quota))
    release.values["shards"] = 2
    release.install(wait=False)
    until(lambda: "shard-1" in release.kubectl("get", "pvc", "-o", "name"), "the second claim", 60)
    release.values["shards"] = 3
    release.install(wait=False)
    _await_owners(operator, [0, 1])
    _goes_on(load)
    release.kubectl("delete", "resourcequota", "claims")
    _await_owners(operator, [0, 1, 2])
    release.install()
    _goes_on(load)


def _remove_by_force(release: Release, operator: Operator, load: ClientPod) -> None:
    assert "3 shards are well" not in operator("scale", "2").stdout
    operator.does("scale", "2", "--force")
    _await_owners(operator, [0, 1])
    _goes_on(load)
    release.values["shards"] = 2
    release.install()
    _goes_on(load)


def _add_again(release: Release, operator: Operator, load: ClientPod) -> None:
    release.values["shards"] = 3
    release.install(wait=False)
    _await_owners(operator, [0, 1, 2])
    release.install()
    _goes_on(load)


def _produce_from_outside(operator: Operator) -> None:
    """Through a forwarded port: the address in a reply 421 is unknown here."""
    found = operator.found()
    with found.client(found.shards()[0]) as client:
        placed = client.produce("load", [NewMessage(body="outside")], shard=2)
    assert placed.messages[0].shard == 2


def _await_owners(operator: Operator, wanted: list[int]) -> None:
    def own_keys() -> bool:
        health = json.loads(operator.does("request", "/healthz/ready", "--shard", "0"))
        return bool(health.get("keyOwners", {}).get("shards") == wanted)

    until(own_keys, f"shards {wanted} own keys", PROPAGATED_S)


def _goes_on(load: ClientPod) -> None:
    for name in ("acked", "committed"):
        done = max(int(line.get(name, 0)) for line in load.lines())
        load.says(name, done + 40)
