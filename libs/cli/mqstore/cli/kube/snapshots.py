"""Snapshots of a shard's volume, by the cluster's own API (snapshot.storage.k8s.io).

Writes are not paused: a snapshot is like a store after a power cut, which every opening recovers.
The command syncs the log before it requests the snapshot. So the snapshot holds every message that
was acknowledged before the command, and every message that was acknowledged as synced before the
storage took the snapshot.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Final

from mqstore.cli.kube.kubectl import KubeError
from mqstore.cli.kube.release import Release, Shard

GROUP: Final = "snapshot.storage.k8s.io"
KIND: Final = f"volumesnapshot.{GROUP}"
_READY: Final = "--for=jsonpath={.status.readyToUse}=true"
_TIMEOUT: Final = "1h"
"""Longest wait for a snapshot: some storage copies it to another system first."""


def take(release: Release, shard: Shard, class_name: str) -> tuple[str, int]:
    """Take a snapshot of the volume of a shard's pod, with replicas the leader's, and wait until it
    is ready. Returns its name, and an offset up to which the log is in it.

    Raises KubeError.
    """
    _require_api(release)
    name = f"{shard.name}-{datetime.now(UTC):%Y%m%d-%H%M%S}"
    with release.client(shard) as client:
        end = client.store().max_offset
        client.flush()
    spec = {
        "volumeSnapshotClassName": class_name,
        "source": {"persistentVolumeClaimName": release.claim_name(shard.name)},
    }
    release.kubectl.run(
        "create", "-f", "-", given=_object(f"{GROUP}/v1", "VolumeSnapshot", name, spec)
    )
    try:
        release.kubectl.run("wait", f"{KIND}/{name}", _READY, f"--timeout={_TIMEOUT}")
    except KubeError as error:
        raise KubeError(
            f"volumesnapshot {name} is not ready ({error}); see: kubectl describe {KIND} {name}"
        ) from error
    return name, end


def find(release: Release, name: str) -> Any:
    """The VolumeSnapshot object ``name``. Raises KubeError if it is not ready to use."""
    _require_api(release)
    snapshot = release.kubectl.json("get", KIND, name)
    if not snapshot.get("status", {}).get("readyToUse"):
        raise KubeError(f"volumesnapshot {name} is not ready; see: kubectl describe {KIND} {name}")
    return snapshot


@contextmanager
def volume_of(release: Release, shard: int, snapshot: Any) -> Iterator[str]:
    """Create a claim from a snapshot, with the shard's storage class, for the context.

    Yields the claim's name.
    """
    kubectl, name = release.kubectl, release.restore_name(shard)
    own = kubectl.json("get", "pvc", release.claim_name(release.first_pod(shard)))["spec"]
    size = snapshot["status"].get("restoreSize") or own["resources"]["requests"]["storage"]
    spec = {
        "accessModes": own["accessModes"],
        "storageClassName": own.get("storageClassName"),
        "resources": {"requests": {"storage": size}},
        "dataSource": {
            "apiGroup": GROUP,
            "kind": "VolumeSnapshot",
            "name": snapshot["metadata"]["name"],
        },
    }
    kubectl.run("create", "-f", "-", given=_object("v1", "PersistentVolumeClaim", name, spec))
    try:
        yield name
    finally:
        kubectl.run("delete", f"pvc/{name}", "--wait")


def _object(version: str, kind: str, name: str, spec: dict[str, Any]) -> str:
    return json.dumps(
        {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}
    )


def _require_api(release: Release) -> None:
    found = release.kubectl.run("api-resources", f"--api-group={GROUP}", "-o", "name")
    if KIND.replace("snapshot.", "snapshots.", 1) not in found.split():
        raise KubeError(
            f"this cluster has no volume snapshots (no API group {GROUP}); name a directory instead"
        )
