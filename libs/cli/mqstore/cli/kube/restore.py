"""``kubectl mqstore restore``: copies a local store directory, or the store in a volume snapshot,
to the volume of a shard.

The command first checks the copy and the room on the volume, while the shard runs. Then it stops
the shard's pod and the pods of higher numbers, with replicas those of the shard; a pod of the same
image holds the volume. The old store is renamed first and deleted only after the copy is complete.
The first replica gets the store, and leads; the claims of the others are deleted, and they copy it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Final

import typer

from mqstore.cli.exit_codes import EXIT_OK
from mqstore.cli.kube import leases, snapshots
from mqstore.cli.kube.commands import OneShard, exit_of, poll_until_true, shard_of
from mqstore.cli.kube.kubectl import EXIT_UNREACHABLE, Kubectl, KubeError
from mqstore.cli.kube.release import STORE_VOLUME, WRITER, Release
from mqstore.cli.kube.sparse_archive import pack, size_on_disk
from mqstore.cli.output import size
from mqstore.cli.progress import show_progress
from mqstore.cli.session import DryRun

_TIMEOUT_S: Final = 300
_TIMEOUT: Final = f"--timeout={_TIMEOUT_S}s"
_STORE: Final = "MQSTORE_STORE"
_LOG: Final = "commitlog"
_SNAPSHOT: Final = PurePosixPath("/mnt/snapshot")
_FEW: Final = {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"memory": "64Mi"}}
"""Resources of a pod that only looks: there may be little room beside the shard's."""
_PLACEMENT: Final = (
    "imagePullSecrets",
    "nodeSelector",
    "tolerations",
    "affinity",
    "priorityClassName",
)


def add(app: typer.Typer) -> None:
    """Register the command."""
    app.command("restore")(restore)


def restore(
    context: typer.Context,
    shard: OneShard,
    directory: Annotated[
        Path | None, typer.Argument(help="Local store directory.", metavar="DIR")
    ] = None,
    snapshot: Annotated[
        str | None,
        typer.Option(
            "--snapshot", help="VolumeSnapshot to restore, instead of a directory.", metavar="NAME"
        ),
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Delete the messages that the shard holds.")
    ] = False,
    dry_run: DryRun = False,
) -> None:
    """Copy a store directory, or the store in a snapshot, to a shard's volume and start the shard.

    Without replicas, shards of higher numbers are unavailable meanwhile too. Exit code 0: the shard
    is ready; 2: refused; 3: the cluster does not answer.

    Examples:

    \b
        kubectl mqstore restore 0 /backup/shard-0 --dry-run
        kubectl mqstore restore 0 /backup/shard-0
        kubectl mqstore restore 0 --snapshot shop-mqstore-shard-0-20261127-120000 --replace
    """

    def run(release: Release) -> int:
        take = _source(release, shard, directory, snapshot)
        _refuse_to_lose(release, shard, replace=replace)
        if directory is not None:
            _require_room_of_running(release, shard, size_on_disk(directory))
        if dry_run:
            pods = ", ".join(_stopped_pods(release, shard))
            source = directory or snapshot
            print(f"would stop {pods}, and replace the store of shard {shard} by {source}")
            return EXIT_OK
        take()
        return _await_ready(release, shard)

    raise exit_of(context, run)


def _source(
    release: Release, number: int, directory: Path | None, snapshot: str | None
) -> Callable[[], None]:
    """The restore from a directory or a snapshot. Raises KubeError if it holds no store."""
    if directory is not None and snapshot is None:
        if not (directory / _LOG).is_dir():
            raise KubeError(f"{directory} is no store directory: it has no {_LOG}")
        return partial(_from_directory, release, number, directory)
    if directory is None and snapshot is not None:
        return partial(_from_snapshot, release, number, snapshots.find(release, snapshot))
    raise KubeError("name a directory, or a VolumeSnapshot with --snapshot")


def _await_ready(release: Release, number: int) -> int:
    if not poll_until_true(lambda: shard_of(release, number).is_ready, _TIMEOUT_S):
        raise KubeError(
            f"shard {number} has the store and is not ready; see kubectl mqstore logs {number}"
        )
    print(f"shard {number} is ready; see what its recovery did with: kubectl mqstore logs {number}")
    return EXIT_OK


def _from_directory(release: Release, number: int, directory: Path) -> None:
    with _stopped(release, number), _holder(release, number) as (pod, root):
        _require_room(release.kubectl, _in(pod), root, size_on_disk(directory))
        _replace(release.kubectl, pod, root, partial(_unpack, release.kubectl, pod, directory))
        _let_first_lead(release, number, pod, root)


def _from_snapshot(release: Release, number: int, snapshot: Any) -> None:
    with snapshots.volume_of(release, number, snapshot) as claim:
        _require_copy_of_snapshot(release, number, claim)
        with _stopped(release, number), _holder(release, number, claim) as (pod, root):
            source = _source_in(release, root)
            needed = _size_of_store(release.kubectl, pod, source)
            _require_room(release.kubectl, _in(pod), root, needed)
            _replace(release.kubectl, pod, root, partial(_copy, release.kubectl, pod, source))
            _let_first_lead(release, number, pod, root)


def _require_copy_of_snapshot(release: Release, number: int, claim: str) -> None:
    """Check a snapshot, by a pod of its own on the node of the shard's, while the shard runs."""
    running = _running(release, number)
    if running is None:
        return
    inside, root, node = running
    with _viewer(release, number, claim, node) as pod:
        needed = _size_of_store(release.kubectl, pod, _source_in(release, root))
    _require_room(release.kubectl, inside, root, needed)


def _source_in(release: Release, root: PurePosixPath) -> PurePosixPath:
    """The path of the store in a snapshot that is mounted."""
    return _SNAPSHOT / root.relative_to(_mount(release)["mountPath"])


def _size_of_store(kubectl: Kubectl, pod: str, source: PurePosixPath) -> int:
    """Bytes on disk of the store in a snapshot. Raises KubeError where there is none."""
    if not kubectl.run(*_in(pod), "sh", "-c", f"[ ! -d {source}/{_LOG} ] || echo found").strip():
        raise KubeError(f"the snapshot holds no store: {source} has no {_LOG}")
    usage = kubectl.run(*_in(pod), "du", "--summarize", "--block-size=1", str(source))
    return int(usage.split()[0])


def _require_room_of_running(release: Release, number: int, needed: int) -> None:
    """Check the room of the shard's volume while the shard runs, if it does."""
    if running := _running(release, number):
        inside, root, _ = running
        _require_room(release.kubectl, inside, root, needed)


def _running(
    release: Release, number: int
) -> tuple[tuple[str, ...], PurePosixPath, str | None] | None:
    """How to run a command in the pod that has the volume, the path of its store, and its node;
    None if no command can be run in it: the shard is down."""
    pod = release.first_pod(number)
    inside = ("exec", pod, "-c", WRITER, "--")
    try:
        root = release.kubectl.run(*inside, "printenv", _STORE).strip()
        node = release.kubectl.run("get", f"pod/{pod}", "-o", "jsonpath={.spec.nodeName}").strip()
    except KubeError as error:
        if error.exit_code == EXIT_UNREACHABLE:
            raise
        return None
    return (inside, PurePosixPath(root), node or None) if root else None


def _refuse_to_lose(release: Release, number: int, *, replace: bool) -> None:
    shard = shard_of(release, number)
    if release.claims_go_with_pods:
        raise KubeError(
            "a restore stops pods, and this release deletes their claims with them: keep the "
            "claims by helm upgrade … --set persistence.retain=true"
        )
    if replace:
        return
    if shard.pod is None:
        raise KubeError(
            f"shard {number} has no pod, so its messages are unknown; --replace replaces its store"
        )
    with release.client(shard) as client:
        store = client.store()
    if store.max_offset > store.min_offset:
        raise KubeError(f"shard {number} holds messages; --replace replaces them")


@contextmanager
def _stopped(release: Release, number: int) -> Iterator[None]:
    """Stop the pods of ``_stopped_pods`` for the context, which frees the volumes."""
    pods = _stopped_pods(release, number)
    left = 0 if release.has_replicas else number
    whole = left + len(pods)
    release.scale(number, left)
    try:
        release.kubectl.run("wait", *(f"pod/{pod}" for pod in pods), "--for=delete", _TIMEOUT)
        yield
    finally:
        release.scale(number, whole)


def _stopped_pods(release: Release, number: int) -> list[str]:
    """The pods of a shard; without replicas those of higher numbers too, as pods of one set."""
    if release.has_replicas:
        return release.pods(number)
    return [release.first_pod(each) for each in range(number, len(release.numbers))]


def _let_first_lead(release: Release, number: int, pod: str, root: PurePosixPath) -> None:
    """Let the shard's first replica alone lead, and delete the claims of the others: their stores
    continue the replaced one."""
    if not release.has_replicas:
        return
    path = root / "mqstore" / "format.json"
    text = release.kubectl.run(*_in(pod), "sh", "-c", f"[ ! -e {path} ] || cat {path}")
    store_id = str(json.loads(text)["storeId"]) if text.strip() else None
    leases.name_first(release, number, store_id)
    for other in release.pods(number)[1:]:
        claim = release.claim_name(other)
        release.kubectl.run("delete", "pvc", claim, "--ignore-not-found", "--wait")


@contextmanager
def _holder(
    release: Release, number: int, snapshot: str | None = None
) -> Iterator[tuple[str, PurePosixPath]]:
    """Run an idle pod that mounts the shard's volume, and the claim ``snapshot`` if given.

    Yields the pod's name and the path of the store in it, which the image sets for store-writer.
    """
    kubectl, name = release.kubectl, release.restore_name(number)
    pod = _pod(release, name, number)
    if snapshot is not None:
        _add_snapshot(pod["spec"], snapshot)
    kubectl.run("apply", "-f", "-", given=json.dumps(pod))
    try:
        kubectl.run("wait", f"pod/{name}", "--for=condition=Ready", _TIMEOUT)
        yield name, PurePosixPath(kubectl.run("exec", name, "--", "printenv", _STORE).strip())
    finally:
        kubectl.run("delete", f"pod/{name}", "--grace-period=1", "--wait")


@contextmanager
def _viewer(release: Release, number: int, claim: str, node: str | None) -> Iterator[str]:
    """Run a pod that mounts a claim, and nothing else; yields its name."""
    kubectl, name = release.kubectl, release.restore_name(number)
    pod = _pod(release, name, number)
    [container] = pod["spec"]["containers"]
    container |= {"resources": _FEW, "volumeMounts": []}
    pod["spec"]["volumes"] = []
    _add_snapshot(pod["spec"], claim)
    if node is not None:
        on_node = {"key": "metadata.name", "operator": "In", "values": [node]}
        terms = {"nodeSelectorTerms": [{"matchFields": [on_node]}]}
        rule = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
        pod["spec"]["affinity"] = {"nodeAffinity": rule}
    kubectl.run("apply", "-f", "-", given=json.dumps(pod))
    try:
        kubectl.run("wait", f"pod/{name}", "--for=condition=Ready", _TIMEOUT)
        yield name
    finally:
        kubectl.run("delete", f"pod/{name}", "--grace-period=1", "--wait")


def _pod(release: Release, name: str, number: int) -> dict[str, Any]:
    """The manifest of the idle pod: image, user and placement are those of the shard's pod."""
    spec, writer = release.template["spec"], release.container(WRITER)
    claim = release.claim_name(release.first_pod(number))
    container = {
        "name": "holder",
        "image": writer["image"],
        "imagePullPolicy": writer["imagePullPolicy"],
        "command": ["sleep", "infinity"],
        "resources": writer.get("resources", {}),
        "securityContext": writer["securityContext"],
        "volumeMounts": [_mount(release)],
    }
    pod = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "securityContext": spec["securityContext"],
        "containers": [container],
        "volumes": [{"name": STORE_VOLUME, "persistentVolumeClaim": {"claimName": claim}}],
    }
    pod |= {name: spec[name] for name in _PLACEMENT if name in spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": pod}


def _add_snapshot(spec: dict[str, Any], claim: str) -> None:
    """Mount a claim in the pod. Only the mount is read-only, not the volume: mounting may replay
    the journal of its file system."""
    [container] = spec["containers"]
    container["volumeMounts"].append(
        {"name": "snapshot", "mountPath": str(_SNAPSHOT), "readOnly": True}
    )
    spec["volumes"].append({"name": "snapshot", "persistentVolumeClaim": {"claimName": claim}})


def _mount(release: Release) -> Any:
    for each in release.container(WRITER)["volumeMounts"]:
        if each["name"] == STORE_VOLUME:
            return {**each, "readOnly": False}
    raise KubeError(f"the store-writer of {release.name} mounts no volume {STORE_VOLUME}")


def _in(pod: str) -> tuple[str, ...]:
    return ("exec", pod, "--")


def _require_room(
    kubectl: Kubectl, inside: tuple[str, ...], root: PurePosixPath, needed: int
) -> None:
    """Raise KubeError unless the volume has ``needed`` bytes free: it holds both stores until the
    new one is complete."""
    df = ("df", "--output=avail", "--block-size=1", str(root.parent))
    free = int(kubectl.run(*inside, *df).split()[-1])
    if free < needed:
        raise KubeError(
            f"the copy takes {size(needed)}, and the volume has {size(free)} free beside what it "
            "holds; make it larger first (kubectl mqstore grow)"
        )


def _replace(
    kubectl: Kubectl, pod: str, root: PurePosixPath, fill: Callable[[PurePosixPath], None]
) -> None:
    """Fill a new directory beside the old store, swap both, and delete the old store."""
    inside = _in(pod)
    fresh, old = root.with_name(f"{root.name}.restoring"), root.with_name(f"{root.name}.replaced")
    kubectl.run(*inside, "rm", "-rf", str(fresh), str(old))
    kubectl.run(*inside, "mkdir", "-p", str(fresh))
    try:
        fill(fresh)
    except BaseException:
        with suppress(KubeError):  # the error of the copy is the one to report
            kubectl.run(*inside, "rm", "-rf", str(fresh))
        raise
    move = (
        f"if [ -e {root} ]; then mv {root} {old}; fi && mv {fresh} {root} && sync && rm -rf {old}"
    )
    kubectl.run(*inside, "sh", "-c", move)


def _unpack(kubectl: Kubectl, pod: str, directory: Path, fresh: PurePosixPath) -> None:
    untar = ("exec", "-i", pod, "--", "tar", "--extract", "--file=-", f"--directory={fresh}")
    with kubectl.streamed_in(*untar) as archive, show_progress() as show:
        total, done = size_on_disk(directory), 0
        for count in pack(archive, directory):
            done += count
            show("copying", done, total)


def _copy(kubectl: Kubectl, pod: str, source: PurePosixPath, fresh: PurePosixPath) -> None:
    """Copy a store within the pod. Zeros become holes: an opening reserves what it writes to."""
    kubectl.run(*_in(pod), "cp", "-R", "--sparse=always", f"{source}/.", str(fresh))
