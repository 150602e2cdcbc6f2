"""Commands of the kubectl plugin on a release with replicas, with the rights of an operator."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.cluster import Release, is_kube_tool, namespace, small_values, until
from tests.e2e.operators import (
    Operator,
    assert_restores,
    bodies,
    operator_of,
    produce,
    remove_filled_shard,
)
from tests.e2e.replica_state import await_label, await_replicas, leader, uids

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.nightly,
    pytest.mark.skipif("KUBECONFIG" not in os.environ, reason="needs a cluster; set KUBECONFIG"),
    pytest.mark.skipif(not is_kube_tool(), reason="needs the kube tool's storage class `sized`"),
    pytest.mark.timeout(900),
]


@pytest.fixture(scope="module")
def release() -> Iterator[Release]:
    """Two shards with two replicas each."""
    size = {"size": "256Mi", "storageClass": "sized"}
    with namespace() as name:
        found = Release(name, "pair", small_values(replicas=2, shards=2, persistence=size))
        found.install()
        yield found


@pytest.fixture
def operator(release: Release, tmp_path: Path) -> Iterator[Operator]:
    with operator_of(release, f"operator-{uuid.uuid4().hex[:6]}", tmp_path) as found:
        yield found


def test_volumes_of_all_replicas_grow_and_no_pod_is_restarted(
    release: Release, operator: Operator
) -> None:
    await_replicas(release, 2)
    produce(operator, "before", "one")
    before, former = uids(release), leader(release)
    operator.does("grow", "320Mi")
    await_replicas(release, 2)
    assert leader(release) != former
    claims = [each for each in release.get("pvc")["items"] if "shard" in each["metadata"]["name"]]
    assert [each["status"]["capacity"]["storage"] for each in claims] == ["320Mi"] * 4
    release.values["persistence"] = {"size": "320Mi", "storageClass": "sized"}
    release.install()
    assert uids(release) == before
    await_label(operator, leader(release))
    assert bodies(operator, "before") == ["one"]


def test_a_restored_shard_is_led_by_its_first_replica_and_the_other_copies_it(
    release: Release, operator: Operator, tmp_path: Path
) -> None:
    await_replicas(release, 2)
    others = {name: uid for name, uid in uids(release).items() if "shard-1-" in name}
    assert_restores(operator, tmp_path / "copy")
    assert leader(release) == f"{release.shard}-0"
    await_replicas(release, 2)
    assert others.items() <= uids(release).items()
    assert bodies(operator, "saved") == ["one", "two"]
    produce(operator, "saved", "four")
    operator.does("switchover", "0", "--to", other := f"{release.shard}-1")
    await_label(operator, other)
    assert bodies(operator, "saved") == ["one", "two", "four"]


def test_a_shard_goes_with_its_replicas_once_it_is_empty(
    release: Release, operator: Operator
) -> None:
    remove_filled_shard(release, operator)
    until(lambda: all("shard-0-" in name for name in uids(release)), "its pods are gone")
    release.install()
    assert [shard.number for shard in operator.found().shards()] == [0]
