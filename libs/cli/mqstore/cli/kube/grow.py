"""``kubectl mqstore grow``: larger volumes without a restart.

A StatefulSet's claim template cannot be changed. So the claims are patched, and the StatefulSet is
made anew around its running pods, with the size that the next ``helm upgrade`` will ask for.
"""

from __future__ import annotations

import json
import re
from functools import partial
from typing import Annotated, Any, Final

import typer

from mqstore.cli.ending import EXIT_FINE
from mqstore.cli.kube.commands import awaited, ended, size
from mqstore.cli.kube.kubectl import KubeError
from mqstore.cli.kube.release import STORE_VOLUME, Release

GROWN_S: Final = 300.0
"""For storage and file system to follow a claim."""
_UNITS: Final = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15} | {
    f"{letter}i": 1 << 10 * (power + 1) for power, letter in enumerate("KMGTP")
}
_QUANTITY: Final = re.compile(r"(\d+(?:\.\d+)?)([a-zA-Z]*)")
_OF_THE_SERVER: Final = ("uid", "resourceVersion", "creationTimestamp", "generation")


def add(app: typer.Typer) -> None:
    app.command("grow")(grow)


def grow(
    context: typer.Context,
    to: Annotated[str, typer.Argument(help="Of each shard's volume, as 200Gi.", metavar="SIZE")],
) -> None:
    """Make the volumes of all shards larger. No pod is restarted.

    The storage class must allow it. Exit code 0: they have grown; 2: refused, also where one is
    larger, since volumes do not shrink; 3: the cluster does not answer.
    """
    raise ended(context, lambda release: _grow(release, to))


def _grow(release: Release, to: str) -> int:
    wanted = quantity(to)
    claims = [release.claim_name(shard.number) for shard in release.shards()]
    for claim in claims:
        now = release.kubectl.json("get", "pvc", claim)["spec"]["resources"]["requests"]["storage"]
        if quantity(now) > wanted:
            raise KubeError(f"{claim} has {now}, and volumes do not shrink; ask for more than that")
    patch = json.dumps({"spec": {"resources": {"requests": {"storage": to}}}})
    for claim in claims:
        release.kubectl.run("patch", "pvc", claim, "--patch", patch)
    _make_anew(release, to)
    for claim in claims:
        print(f"{claim} has {size(_grown(release, claim, wanted))}")
    print(f"let the chart know: helm upgrade … --set persistence.size={to}")
    return EXIT_FINE


def _make_anew(release: Release, to: str) -> None:
    """The StatefulSet around its pods, which do not notice."""
    templates = release.stateful_set["spec"].get("volumeClaimTemplates", ())
    if not templates:
        return  # an existing claim: there is nothing about sizes in it
    anew = json.loads(json.dumps(release.stateful_set))
    for template in anew["spec"]["volumeClaimTemplates"]:
        if template["metadata"]["name"] == STORE_VOLUME:
            template["spec"]["resources"]["requests"]["storage"] = to
    if anew == release.stateful_set:
        return
    del anew["status"]
    _forget(anew["metadata"])
    name = f"statefulset/{release.name}-shard"
    release.kubectl.run("delete", name, "--cascade=orphan")
    release.kubectl.run("create", "-f", "-", given=json.dumps(anew))


def _forget(metadata: dict[str, Any]) -> None:
    for name in _OF_THE_SERVER:
        metadata.pop(name, None)


def _grown(release: Release, claim: str, wanted: int) -> int:
    """What its file system has, once that is as much; storage may round up."""
    found = awaited(partial(_capacity, release, claim, wanted), GROWN_S)
    if found is None:
        raise KubeError(f"{claim} was asked to grow and has not; see: kubectl describe pvc {claim}")
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
