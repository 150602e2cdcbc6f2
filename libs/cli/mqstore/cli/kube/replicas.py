"""``kubectl mqstore replicas``: names the volumes of a release for one, or for several replicas of
each shard.

The StatefulSets of the two have different names, and so have their claims. The command stops the
shards and gives the volume of each shard's first replica to a claim of the other name. Each step is
repeated by another run of the command. The next ``helm upgrade`` starts the shards.
"""

from __future__ import annotations

import json
from functools import partial
from typing import Annotated, Any, Final

import typer

from mqstore.cli.exit_codes import EXIT_OK
from mqstore.cli.kube import leases
from mqstore.cli.kube.commands import exit_of, poll_until_true
from mqstore.cli.kube.kubectl import KubeError
from mqstore.cli.kube.release import STORE_VOLUME, Release
from mqstore.cli.session import DryRun

IN_SYNC_S: Final = 60.0
"""Longest wait for the first replica to be the only one in sync, once the others are stopped."""
_TIMEOUT: Final = "--timeout=300s"
_POLICY: Final = "mqstore/reclaim-policy"
"""Annotation of a volume: its policy outside of this command, which must not delete it."""


def add(app: typer.Typer) -> None:
    """Register the command."""
    app.command("replicas")(replicas)


def replicas(
    context: typer.Context,
    count: Annotated[int, typer.Argument(help="Replicas of each shard.", min=1, metavar="COUNT")],
    dry_run: DryRun = False,
) -> None:
    """Prepare the change from one replica of each shard to several, or from several to one.

    The shards stop until the next helm upgrade sets the number. A change from 3 replicas to 2, or
    from 2 to 3, needs helm upgrade alone. The command patches PersistentVolumes, for which the role
    for operators has no right. Exit code 0: upgrade now; 2: refused; 3: a shard, or the cluster,
    does not answer.

    Examples:

    \b
        kubectl mqstore replicas 3 --dry-run
        kubectl mqstore replicas 3
        kubectl mqstore replicas 1
    """
    raise exit_of(
        context, lambda release: _prepare(release, count, several=count > 1, dry_run=dry_run)
    )


def _prepare(release: Release, count: int, *, several: bool, dry_run: bool) -> int:
    _require_rights(release)
    names = {
        number: (_claim(release, number, not several), _claim(release, number, several))
        for number in _listed(release)
    }
    left = {number: each for number, each in names.items() if not _is_renamed(release, each[1])}
    if left and release.numbers and several == release.has_replicas:
        claims = ", ".join(new for _, new in left.values())
        raise KubeError(f"the shards run, and claims of theirs do not exist: {claims}")
    if dry_run and left:
        for number, (old, new) in left.items():
            print(f"shard {number}: would stop, and give the volume of claim {old} to claim {new}")
        return EXIT_OK
    if left and release.numbers:
        for old, new in left.values():
            _retain(release, _volume(release, old, new))
        stop = _stop_replicas if release.has_replicas else _stop
        stop(release)
    for number, (old, new) in left.items():
        leases.require_first_alone(release, number)
        _rename(release, old, new)
        print(f"shard {number}: its volume is that of claim {new}")
    print(f"upgrade now: helm upgrade … --set replicas={count}")
    return EXIT_OK


def _require_rights(release: Release) -> None:
    try:
        release.kubectl.run("auth", "can-i", "patch", "persistentvolumes")
    except KubeError as error:
        raise KubeError(
            "this command needs the right to patch PersistentVolumes, which belong to the whole "
            "cluster; let an administrator of the cluster run it",
            error.exit_code,
        ) from error


def _listed(release: Release) -> list[int]:
    """Numbers of the shards of the release, whether they run or not."""
    found = release.kubectl.json("get", "configmap", f"{release.name}-shards")
    return [each["shard"] for each in json.loads(found["data"]["shards.json"])["shards"]]


def _claim(release: Release, number: int, several: bool) -> str:
    """Name of the claim of a shard's first replica where there are several replicas, or one."""
    if several == release.has_replicas:
        return release.claim_name(release.first_pod(number))
    return f"{STORE_VOLUME}-{release.lease_name(number)}" + ("-0" if several else "")


# stopping the shards


def _stop(release: Release) -> None:
    """Stop the shards, each of which has one replica: it is to lead when there are several."""
    for shard in release.shards():
        with release.client(shard) as client:
            leases.make(release, shard.number, client.store().store_id)
    release.scale(0, 0)
    _await_end(release, [release.first_pod(number) for number in release.numbers])


def _stop_replicas(release: Release) -> None:
    """Stop the replicas of each shard. The first one is the last, and leads."""
    for shard in release.shards():
        if shard.name != (first := release.first_pod(shard.number)):
            with release.client(shard) as client:
                client.switch_over(first)
    for number in release.numbers:
        release.scale(number, 1)
        _await_end(release, release.pods(number)[1:])
    for number in release.numbers:
        poll_until_true(partial(_is_alone, release, number), IN_SYNC_S)
        leases.require_first_alone(release, number)
        release.scale(number, 0)
        _await_end(release, [release.first_pod(number)])


def _is_alone(release: Release, number: int) -> bool:
    return len(leases.in_sync(release, number)) == 1


def _await_end(release: Release, pods: list[str]) -> None:
    if pods:
        release.kubectl.run("wait", *(f"pod/{pod}" for pod in pods), "--for=delete", _TIMEOUT)


# renaming claims


def _is_renamed(release: Release, claim: str) -> bool:
    """Whether the claim has its volume, and no step of ``_rename`` is left."""
    found = _found(release, "pvc", claim)
    if found is None or found["status"].get("phase") != "Bound":
        return False
    volume = release.kubectl.json("get", "pv", found["spec"]["volumeName"])
    return _POLICY not in volume["metadata"].get("annotations", {})


def _rename(release: Release, old: str, new: str) -> None:
    """Give the volume of a claim, which no pod uses, to a claim of another name."""
    kubectl = release.kubectl
    volume = _volume(release, old, new)
    former = _retain(release, volume)
    name, spec = volume["metadata"]["name"], volume["spec"]
    kubectl.run("delete", "pvc", old, "--ignore-not-found", "--wait", _TIMEOUT)
    if spec["claimRef"]["name"] != new:
        _patch_volume(release, name, {"spec": {"claimRef": _unbound(release, new)}})
    if _found(release, "pvc", new) is None:
        made = _claim_of(release, volume, new)
        kubectl.run("create", "-f", "-", given=json.dumps(made))
    kubectl.run("wait", f"pvc/{new}", "--for=jsonpath={.status.phase}=Bound", _TIMEOUT)
    spec = {"persistentVolumeReclaimPolicy": former}
    _patch_volume(release, name, {"metadata": {"annotations": {_POLICY: None}}, "spec": spec})


def _volume(release: Release, old: str, new: str) -> Any:
    """The volume that the first or the second of two claims has, or had. Raises KubeError."""
    claim = _found(release, "pvc", old)
    if claim is not None and claim["spec"].get("volumeName"):
        return release.kubectl.json("get", "pv", claim["spec"]["volumeName"])
    for volume in release.kubectl.json("get", "pv")["items"]:
        bound = volume["spec"].get("claimRef", {})
        if bound.get("namespace") == _namespace(release) and bound.get("name") in (old, new):
            return volume
    raise KubeError(f"no volume is, or was, that of claim {old}")


def _retain(release: Release, volume: Any) -> str:
    """Let a volume outlive its claim; returns its policy before."""
    present = str(volume["spec"]["persistentVolumeReclaimPolicy"])
    former = str(volume["metadata"].get("annotations", {}).get(_POLICY, present))
    _patch_volume(
        release,
        volume["metadata"]["name"],
        {
            "metadata": {"annotations": {_POLICY: former}},
            "spec": {"persistentVolumeReclaimPolicy": "Retain"},
        },
    )
    return former


def _patch_volume(release: Release, name: str, change: dict[str, Any]) -> None:
    release.kubectl.run("patch", "pv", name, "--type=merge", "--patch", json.dumps(change))


def _unbound(release: Release, claim: str) -> dict[str, Any]:
    """The reference by which a volume waits for a claim that does not exist yet."""
    named = {"namespace": _namespace(release), "name": claim}
    return named | {"uid": None, "resourceVersion": None}


def _claim_of(release: Release, volume: Any, name: str) -> dict[str, Any]:
    spec = volume["spec"]
    labels = dict(each.split("=") for each in release.selector("shard").split(","))
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "accessModes": spec["accessModes"],
            "storageClassName": spec.get("storageClassName", ""),
            "volumeMode": spec.get("volumeMode", "Filesystem"),
            "volumeName": volume["metadata"]["name"],
            "resources": {"requests": {"storage": spec["capacity"]["storage"]}},
        },
    }


def _found(release: Release, kind: str, name: str) -> Any:
    """An object, or None."""
    text = release.kubectl.run("get", kind, name, "--ignore-not-found", "-o", "json")
    return json.loads(text) if text.strip() else None


def _namespace(release: Release) -> str:
    return str(release.stateful_set["metadata"]["namespace"])
