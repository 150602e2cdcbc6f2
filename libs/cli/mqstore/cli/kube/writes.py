"""``kubectl mqstore pause`` and ``resume``: pause and resume the writes of shards."""

from __future__ import annotations

from typing import Annotated

import typer

from mqstore.cli.exit_codes import EXIT_OK
from mqstore.cli.kube.commands import SomeShard, chosen_shards, exit_of
from mqstore.cli.kube.release import Release
from mqstore.cli.session import DryRun


def add(app: typer.Typer) -> None:
    """Register the commands."""
    app.command("pause")(pause)
    app.command("resume")(resume)


def pause(
    context: typer.Context,
    reason: Annotated[str, typer.Option(help="Reason that producers get in the 503 reply.")],
    shard: SomeShard = None,
    dry_run: DryRun = False,
) -> None:
    """Pause the writes of shards: they reply to producers with 503 and the reason.

    The pause outlives restarts; the shards serve reads. Exit code 0: paused; 2: refused; 3: a shard
    does not answer.

    Examples:

    \b
        kubectl mqstore pause --reason "the volumes are moved"
        kubectl mqstore pause --reason test --shard 0 --dry-run
    """
    raise exit_of(context, lambda release: _put(release, shard, reason, dry_run=dry_run))


def resume(context: typer.Context, shard: SomeShard = None, dry_run: DryRun = False) -> None:
    """Resume the writes of shards.

    Exit code 0: the shards accept messages; 2: refused; 3: a shard does not answer.

    Examples:

    \b
        kubectl mqstore resume
        kubectl mqstore resume --shard 0 --dry-run
    """
    raise exit_of(context, lambda release: _put(release, shard, None, dry_run=dry_run))


def _put(release: Release, number: int | None, reason: str | None, *, dry_run: bool) -> int:
    for shard in chosen_shards(release, number):
        if dry_run:
            print(f"{shard.name}: would {'resume' if reason is None else 'pause'} writes")
            continue
        with release.client(shard) as client:
            client.put_writes(paused=reason is not None, reason=reason or "")
        print(f"{shard.name}: {'takes messages' if reason is None else 'writes paused'}")
    return EXIT_OK
