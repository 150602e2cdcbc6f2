"""Leases by which the replicas of shards elect their leaders, as operators change them while the
replicas are stopped: the annotations are those of ``mqstore.service.kube_lease``."""

from __future__ import annotations

import json
from typing import Any, Final

from mqstore.cli.kube.kubectl import KubeError
from mqstore.cli.kube.release import Release

IN_SYNC: Final = "mqstore/in-sync"
SUCCESSOR: Final = "mqstore/successor"
_STORE_ID_SIZE: Final = 8
"""Characters of the id of a store that are part of a replica's name."""


def replica_name(pod: str, store_id: str) -> str:
    """Name of a replica with its store, as it takes the lease."""
    return f"{pod}/{store_id[:_STORE_ID_SIZE]}"


def in_sync(release: Release, number: int) -> list[str]:
    """Names of the replicas of a shard that have all messages. Raises KubeError."""
    lease = release.kubectl.json("get", "lease", release.lease_name(number))
    return str(lease["metadata"].get("annotations", {}).get(IN_SYNC, "")).split()


def name_first(release: Release, number: int, store_id: str | None) -> None:
    """Let the first replica of a shard with this store be the only one that may lead; None: a store
    that mqstore has not opened yet, whose lease begins anew. Raises KubeError."""
    pod = f"{release.lease_name(number)}-0"
    name = "" if store_id is None else replica_name(pod, store_id)
    release.kubectl.run(
        *("patch", "lease", release.lease_name(number), "--type=merge"),
        *("--patch", json.dumps(_named(name))),
    )


def make(release: Release, number: int, store_id: str) -> None:
    """Name the first replica as ``name_first`` does, in a Lease that may not exist: it is made as
    helm's. Raises KubeError."""
    lease, own = release.lease_name(number), release.stateful_set["metadata"]
    if not release.kubectl.run("get", "lease", lease, "--ignore-not-found", "-o", "name").strip():
        given = own.get("annotations", {})
        metadata = {
            "name": lease,
            "labels": own["labels"],
            "annotations": {key: given[key] for key in given if key.startswith("meta.helm.sh/")},
        }
        made = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata}
        release.kubectl.run("create", "-f", "-", given=json.dumps(made))
    name_first(release, number, store_id)


def _named(name: str) -> dict[str, Any]:
    spec: dict[str, Any] = {"holderIdentity": ""}
    if not name:
        spec["leaseTransitions"] = 0
    return {"metadata": {"annotations": {IN_SYNC: name, SUCCESSOR: ""}}, "spec": spec}


def require_first_alone(release: Release, number: int) -> None:
    """Raises KubeError unless the first replica alone has all messages."""
    pod, names = f"{release.lease_name(number)}-0", in_sync(release, number)
    if [name.partition("/")[0] for name in names] != [pod]:
        raise KubeError(
            f"{pod} is not the only replica in sync of shard {number}: {', '.join(names) or 'none'}"
        )
