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
from mqstore.cli.kube.release import STORE_VOLUME, Release
from mqstore.cli.output import size

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
) -> None:
    """Enlarge the volumes of all shards. No pod is restarted.

    The storage class must allow volume expansion. Exit code 0: the volumes have the new size;
    2: refused, also if a volume is larger, since volumes do not shrink; 3: the cluster does not
    answer.
    """
    raise exit_of(context, lambda release: _grow(release, to))


def _grow(release: Release, to: str) -> int:
    release.require_no_replicas("grow")
    wanted = quantity(to)
    claims = [release.claim_name(shard.number) for shard in release.shards()]
    for claim in claims:
        now = release.kubectl.json("get", "pvc", claim)["spec"]["resources"]["requests"]["storage"]
        if quantity(now) > wanted:
            raise KubeError(f"{claim} has {now}, and volumes do not shrink; name a larger size")
    patch = json.dumps({"spec": {"resources": {"requests": {"storage": to}}}})
    for claim in claims:
        release.kubectl.run("patch", "pvc", claim, "--patch", patch)
    _make_anew(release, to)
    for claim in claims:
        print(f"{claim} has {size(_grown(release, claim, wanted))}")
    print(f"let the chart know: helm upgrade … --set persistence.size={to}")
    return EXIT_OK


def _make_anew(release: Release, to: str) -> None:
    """Delete the StatefulSet without its pods and create it with claims of the new size."""
    templates = release.stateful_set["spec"].get("volumeClaimTemplates", ())
    if not templates:
        return  # the shard uses an existing claim, so the StatefulSet holds no size
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
