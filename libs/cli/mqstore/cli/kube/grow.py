"""``kubectl mqstore grow``: enlarges the volumes of the shards without a restart.

Kubernetes does not allow changes of a StatefulSet's claim template. So the command patches the
claims, deletes the StatefulSet without its pods and creates it with the new size, which the next
``helm upgrade`` must set too.
"""

from __future__ import annotations

import json
import re
from functools import partial
from typing import Annotated, Any, Final

import typer

from mqstore.cli.exit_codes import EXIT_OK
from mqstore.cli.kube.commands import exit_of, poll_until_true
from mqstore.cli.kube.kubectl import KubeError
from mqstore.cli.kube.release import STORE_VOLUME, Release, Shard
from mqstore.cli.output import size
from mqstore.cli.session import DryRun

GROWN_S: Final = 300.0
"""Longest wait for storage and file system to reach the size of a claim."""
_UNITS: Final = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15} | {
    f"{letter}i": 1 << 10 * (power + 1) for power, letter in enumerate("KMGTP")
}
_QUANTITY: Final = re.compile(r"(\d+(?:\.\d+)?)([a-zA-Z]*)")
_OF_THE_SERVER: Final = ("uid", "resourceVersion", "creationTimestamp", "generation")


def add(app: typer.Typer) -> None:
    """Register the command."""
    app.command("grow")(grow)


def grow(
    context: typer.Context,
    to: Annotated[
        str, typer.Argument(help="New size of each shard's volume, as 200Gi.", metavar="SIZE")
    ],
    dry_run: DryRun = False,
) -> None:
    """Enlarge the volumes of all shards. No pod is restarted; of replicas each leader hands over
    once the volumes of its followers have grown.

    The storage class must allow volume expansion. Exit code 0: the volumes have the new size;
    2: refused, also if a volume is larger, since volumes do not shrink; 3: the cluster does not
    answer.

    Examples:

    \b
        kubectl mqstore grow 200Gi --dry-run
        kubectl mqstore grow 200Gi
    """
    try:
        wanted = quantity(to)
    except KubeError as error:  # before the cluster is called
        raise typer.BadParameter(str(error)) from error
    raise exit_of(context, lambda release: _grow(release, to, wanted, dry_run=dry_run))


def _grow(release: Release, to: str, wanted: int, *, dry_run: bool) -> int:
    shards = release.shards()
    claims = [claim for shard in shards for claim in _claims(release, shard.number)]
    for claim in claims:
        now = release.kubectl.json("get", "pvc", claim)["spec"]["resources"]["requests"]["storage"]
        if quantity(now) > wanted:
            raise KubeError(f"{claim} has {now}, and volumes do not shrink; name a larger size")
    if dry_run:
        print(f"would enlarge {', '.join(claims)} to {to}")
        return EXIT_OK
    if release.has_replicas:
        for shard in shards:
            _grow_replicas(release, shard, to)
    else:
        _grow_claims(release, [release.claim_name(shard.name) for shard in shards], to)
    for stateful_set in release.stateful_sets:
        _make_anew(release, stateful_set, to)
    print(f"let the chart know: helm upgrade … --set persistence.size={to}")
    return EXIT_OK


def _claims(release: Release, number: int) -> list[str]:
    return [release.claim_name(pod) for pod in release.pods(number)]


def _grow_replicas(release: Release, shard: Shard, to: str) -> None:
    """Enlarge the volumes of the followers, hand the lead over to one of them, and enlarge that of
    the former leader: a volume that fails to grow is that of a follower."""
    leader = release.claim_name(shard.name)
    followers = [each for each in _claims(release, shard.number) if each != leader]
    _grow_claims(release, followers, to)
    if _capacity(release, leader, quantity(to)) is None:
        with release.client(shard) as client:
            successor = client.switch_over(None).successor
        print(f"shard {shard.number}: {successor.partition('/')[0]} leads")
        _grow_claims(release, [leader], to)


def _grow_claims(release: Release, claims: list[str], to: str) -> None:
    """Patch claims and wait until all of them have grown."""
    patch = json.dumps({"spec": {"resources": {"requests": {"storage": to}}}})
    for claim in claims:
        release.kubectl.run("patch", "pvc", claim, "--patch", patch)
    for claim in claims:
        print(f"{claim} has {size(_grown(release, claim, quantity(to)))}")


def _make_anew(release: Release, stateful_set: Any, to: str) -> None:
    """Delete a StatefulSet without its pods and create it with claims of the new size."""
    anew = json.loads(json.dumps(stateful_set))
    for template in anew["spec"].get("volumeClaimTemplates", ()):
        if template["metadata"]["name"] == STORE_VOLUME:
            template["spec"]["resources"]["requests"]["storage"] = to
    if anew == stateful_set:
        return  # it has this size, or the shard uses an existing claim
    del anew["status"]
    _forget(anew["metadata"])
    name = f"statefulset/{anew['metadata']['name']}"
    release.kubectl.run("delete", name, "--cascade=orphan")
    release.kubectl.run("create", "-f", "-", given=json.dumps(anew))


def _forget(metadata: dict[str, Any]) -> None:
    for name in _OF_THE_SERVER:
        metadata.pop(name, None)


def _grown(release: Release, claim: str, wanted: int) -> int:
    """Wait until a claim has ``wanted`` bytes; returns its capacity, which storage may round up."""
    found = poll_until_true(partial(_capacity, release, claim, wanted), GROWN_S)
    if found is None:
        raise KubeError(f"{claim} has not grown in time; see: kubectl describe pvc {claim}")
    return found


def _capacity(release: Release, claim: str, least: int) -> int | None:
    status = release.kubectl.json("get", "pvc", claim)["status"]
    found = quantity(status.get("capacity", {}).get("storage", "0"))
    return found if found >= least else None


def quantity(text: str) -> int:
    """Bytes of a Kubernetes quantity. Raises KubeError."""
    found = _QUANTITY.fullmatch(text)
    if found is None or found[2] not in _UNITS:
        raise KubeError(f"{text} is no size; write it as 200Gi")
    return int(float(found[1]) * _UNITS[found[2]])
