"""``kubectl mqstore scale``: removes empty shards. Only the chart adds shards."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from mqstore.cli.exit_codes import EXIT_OK, refuse
from mqstore.cli.kube.commands import exit_of
from mqstore.cli.kube.kubectl import EXIT_REFUSED, KubeError
from mqstore.cli.kube.release import Release
from mqstore.cli.output import size
from mqstore.cli.session import DryRun
from mqstore.client import ClientError

_ALL_SEGMENTS: Final = 100_000


def add(app: typer.Typer) -> None:
    """Register the command."""
    app.command("scale")(scale)


def scale(
    context: typer.Context,
    shards: Annotated[int, typer.Argument(help="New number of shards.", min=1)],
    force: Annotated[
        bool, typer.Option("--force", help="Remove shards that still hold messages, too.")
    ] = False,
    dry_run: DryRun = False,
) -> None:
    """Reduce the number of shards. Their volumes are kept, unless persistence.retain is false.

    Unique keys of a shard that goes belong to the others at once. The command refuses to remove a
    shard with messages that have not expired or that a pin, a group
    or a delay keeps: clients could not read them until the shard is back. It refuses more shards
    too: the chart lists the shards and their Services.
    Exit code 0: scaled; 2: refused; 3: a shard does not answer.

    Examples:

    \b
        kubectl mqstore scale 2 --dry-run
        kubectl mqstore scale 2
    """
    raise exit_of(context, lambda release: scaled(release, shards, force=force, dry_run=dry_run))


def scaled(release: Release, shards: int, *, force: bool, dry_run: bool = False) -> int:
    """Scale the StatefulSets down and return the exit code, 0 or 2. Raises KubeError."""
    if shards > len(release.numbers):
        refuse(
            f"there are {len(release.numbers)} shards, and the chart adds some, as it lists them: "
            f"helm upgrade {release.instance} charts/mqstore --reset-then-reuse-values "
            f"--set shards={shards}"
        )
        return EXIT_REFUSED
    held = [] if force else list(_held(release, shards))
    if held:
        for line in held:
            refuse(line)
        return EXIT_REFUSED
    if dry_run:
        print(f"would remove the shards {', '.join(map(str, release.numbers[shards:]))}")
        return EXIT_OK
    if (why := _release_keys(release, shards)) is not None and not force:
        refuse(f"{why}; --force removes the shards anyway")
        return EXIT_REFUSED
    if why is not None:
        print(f"{why}; messages under them are rejected until the shards have the new list")
    if release.has_replicas:
        for number in release.numbers[shards:]:
            print(release.scale(number, 0).strip())
    else:
        print(release.scale(shards, shards).strip())
    print(
        f"let the chart know: helm upgrade … --set shards={shards}; until then the shards' list is "
        "the old one, and the next upgrade undoes this"
    )
    return EXIT_OK


def _release_keys(release: Release, shards: int) -> str | None:
    """Move the keys of the shards that go to those that stay; why that failed, or None."""
    numbers = release.numbers[shards:]
    try:
        with release.client(release.shards()[0]) as client:
            for number in numbers:
                client.release_keys(number)
    except (ClientError, KubeError) as error:
        return f"the unique keys of shards {', '.join(map(str, numbers))} stay with them ({error})"
    return None


def _held(release: Release, shards: int) -> list[str]:
    """One line for each shard that cannot be removed, with the reason."""
    return [
        why
        for shard in release.shards()
        if shard.number >= shards and (why := _messages_in(release, shard.number)) is not None
    ]


def _messages_in(release: Release, number: int) -> str | None:
    shard = next(each for each in release.shards() if each.number == number)
    if shard.pod is None:
        return f"shard {number} has no pod, so its messages are unknown; --force removes it anyway"
    try:
        with release.client(shard) as client:
            plan, end = client.retention(limit=_ALL_SEGMENTS), client.store().max_offset
    except ClientError as error:
        return f"the messages of shard {number} are unknown ({error}); --force removes it anyway"
    kept = sum(
        min(segment["size"], end - segment["offset"])
        for segment in plan.segments
        if segment["offset"] < end and (segment["expiresMs"] > plan.made_ms or segment["heldBy"])
    )
    if not kept:
        return None
    return (
        f"shard {number} holds {size(kept)} of messages that have not expired, or that retention "
        f"must keep (kubectl mqstore retention); pause its writes and wait for that, or --force"
    )
