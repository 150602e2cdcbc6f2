"""Backup and restore by volume snapshots, with no more rights than the chart's role for operators.

The kube tool's cluster has no storage that takes snapshots: the API's own resources are installed,
and the test does what such a storage would, by copying the volume's folder.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.cluster import Release, go_module, is_kube_tool, run, until
from tests.e2e.operators import Operator, bodies, operator_of, produce

SNAPSHOTTER = "github.com/kubernetes-csi/external-snapshotter/client/v8@v8.2.0"
KIND = "volumesnapshots.snapshot.storage.k8s.io"
CLASS = "fast"
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.nightly,
    pytest.mark.skipif("KUBECONFIG" not in os.environ, reason="needs a cluster; set KUBECONFIG"),
    pytest.mark.skipif(not is_kube_tool(), reason="needs volumes that are folders here"),
    pytest.mark.skipif(shutil.which("go") is None, reason="needs go, whose proxy has the CRDs"),
    pytest.mark.timeout(600),
]


@pytest.fixture
def crd() -> Iterator[None]:
    """The API's own, as its Go module ships it; it goes again."""
    path = go_module(SNAPSHOTTER) / "config/crd/snapshot.storage.k8s.io_volumesnapshots.yaml"
    run("kubectl", "apply", "-f", str(path))
    run("kubectl", "wait", "--for=condition=Established", f"crd/{KIND}", "--timeout=60s")
    yield
    run("kubectl", "delete", f"crd/{KIND}")


@pytest.fixture
def operator(release: Release, tmp_path: Path) -> Iterator[Operator]:
    with operator_of(release, "operator-of-snapshots", tmp_path) as found:
        yield found


@dataclass(frozen=True)
class Storage:
    """The actions of a storage driver that takes snapshots."""

    release: Release
    content: Path
    """Content of the only snapshot."""

    def take(self, snapshot: dict[str, Any]) -> None:
        claim = snapshot["spec"]["source"]["persistentVolumeClaimName"]
        volume = self.release.get("pvc", claim)["spec"]["volumeName"]
        [folder] = _volumes().glob(f"*_{claim}_{volume}")
        run("cp", "-a", str(folder), str(self.content))
        status = {"readyToUse": True, "restoreSize": "256Mi"}
        name, patch = snapshot["metadata"]["name"], json.dumps({"status": status})
        words = ("patch", KIND, name, "--subresource=status", "--type=merge", "--patch", patch)
        self.release.kubectl(*words)

    def offer(self, claim: str) -> str:
        """A volume with the content, for a claim of this name only; its name."""
        volume = f"{self.release.namespace}-snapshot"
        spec = {
            "capacity": {"storage": "256Mi"},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": "standard",
            "claimRef": {"namespace": self.release.namespace, "name": claim},
            "hostPath": {"path": str(self.content), "type": "Directory"},
        }
        made = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": volume}}
        run("kubectl", "create", "-f", "-", given=json.dumps(made | {"spec": spec}))
        return volume


@pytest.fixture
def storage(release: Release) -> Iterator[Storage]:
    content = _volumes() / f"{release.namespace}-snapshot"
    yield Storage(release, content)
    shutil.rmtree(content, ignore_errors=True)


def _volumes() -> Path:
    return Path(os.environ["KUBECONFIG"]).parent / "volumes"


def test_without_the_api_a_directory_is_required(operator: Operator) -> None:
    for words in (("backup", "0", "--snapshot", CLASS), ("restore", "0", "--snapshot", "any")):
        refused = operator(*words)
        assert refused.returncode == 2
        assert "this cluster has no volume snapshots" in refused.stderr
    assert operator("backup", "0").returncode == 2
    assert operator("restore", "0", "here", "--snapshot", "any").returncode == 2


def test_a_shard_is_restored_from_a_snapshot_of_its_volume(
    release: Release, operator: Operator, storage: Storage, crd: None
) -> None:
    produce(operator, "snapped", "one", "two")
    with operator.started("backup", "0", "--snapshot", CLASS) as backup:
        [snapshot] = until(lambda: release.get(KIND)["items"], "the snapshot is requested")
        assert snapshot["spec"]["volumeSnapshotClassName"] == CLASS
        name = snapshot["metadata"]["name"]
        assert operator("restore", "0", "--snapshot", name, "--replace").returncode == 2, "not yet"
        storage.take(snapshot)
        said, errors = backup.communicate()
        assert (backup.returncode, errors) == (0, "")
        assert f"restore 0 --snapshot {name}" in said
    produce(operator, "snapped", "three")
    assert operator("restore", "0", "--snapshot", name).returncode == 2, "it holds messages"
    volume = storage.offer(f"{release.full_name}-restore-0")
    try:
        operator.does("restore", "0", "--snapshot", name, "--replace")
    finally:
        run("kubectl", "delete", "pv", volume)
    assert bodies(operator, "snapped") == ["one", "two"]
    produce(operator, "snapped", "four")
    assert bodies(operator, "snapped") == ["one", "two", "four"]
    assert "restore" not in release.kubectl("get", "pvc", "-o", "name")
