"""``kubectl mqstore scale``: fewer shards, once they are empty. More are the chart's to add."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from mqstore.cli.ending import EXIT_FINE, refuse
from mqstore.cli.kube.commands import ended, size
from mqstore.cli.kube.kubectl import EXIT_REFUSED
from mqstore.cli.kube.release import Release
from mqstore.client import ClientError

_ALL_SEGMENTS: Final = 100_000


def add(app: typer.Typer) -> None:
    app.command("scale")(scale)


def scale(
    context: typer.Context,
    shards: Annotated[int, typer.Argument(help="How many there shall be.", min=1)],
    force: Annotated[
        bool, typer.Option("--force", help="Also where messages are no longer served then.")
    ] = False,
) -> None:
    """Have fewer shards. Volumes of shards that go are kept, unless persistence.retain is false.

    Refused while a shard that would go holds messages that have not expired, or that a pin, a group
    or a delay keeps: nobody can read them until it is back. More shards are refused too: their list
    and Services are the chart's.
    Exit code 0: scaled; 2: refused; 3: a shard does not answer.
    """
    raise ended(context, lambda release: scaled(release, shards, force=force))


def scaled(release: Release, shards: int, *, force: bool) -> int:
    """Exit code 0 or 2. Raises KubeError."""
    if shards > release.replicas:
        refuse(
            f"there are {release.replicas} shards, and the chart adds some, as it lists them: "
            f"helm upgrade {release.instance} charts/mqstore --reset-then-reuse-values "
            f"--set shards={shards}"
        )
        return EXIT_REFUSED
    held = [] if force else list(_held(release, shards))
    if held:
        for line in held:
            refuse(line)
        return EXIT_REFUSED
    name = f"statefulset/{release.name}-shard"
    print(release.kubectl.run("scale", name, f"--replicas={shards}").strip())
    print(
        f"let the chart know: helm upgrade … --set shards={shards}; until then the shards' list is "
        "the old one, and the next upgrade undoes this"
    )
    return EXIT_FINE


def _held(release: Release, shards: int) -> list[str]:
    """Why shards cannot go, a line for each."""
    return [
        why
        for shard in release.shards()
        if shard.number >= shards and (why := _messages_in(release, shard.number)) is not None
    ]


def _messages_in(release: Release, number: int) -> str | None:
    shard = next(each for each in release.shards() if each.number == number)
    if shard.pod is None:
        return f"shard {number} has no pod that tells what it holds; --force scales all the same"
    try:
        with release.client(shard) as client:
            plan, end = client.retention(limit=_ALL_SEGMENTS), client.store().max_offset
    except ClientError as error:
        return f"shard {number} does not tell what it holds ({error}); --force scales all the same"
    kept = sum(
        min(segment["size"], end - segment["offset"])
        for segment in plan.segments
        if segment["offset"] < end and (segment["expiresMs"] > plan.made_ms or segment["heldBy"])
    )
    if not kept:
        return None
    return (
        f"shard {number} holds {size(kept)} of messages that have not expired, or that somebody "
        f"needs (kubectl mqstore retention); pause its writes and wait for that, or --force"
    )
