"""``kubectl mqstore pause`` and ``resume``: whether shards take messages."""

from __future__ import annotations

from typing import Annotated

import typer

from mqstore.cli.ending import EXIT_FINE
from mqstore.cli.kube.commands import SomeShard, chosen_shards, ended
from mqstore.cli.kube.release import Release


def add(app: typer.Typer) -> None:
    app.command("pause")(pause)
    app.command("resume")(resume)


def pause(
    context: typer.Context,
    reason: Annotated[str, typer.Option(help="What clients are told.")],
    shard: SomeShard = None,
) -> None:
    """Have shards take no messages: producers are answered 503 with the reason.

    It outlives restarts; reads go on. Exit code 0: paused; 2: refused; 3: a shard does not answer.
    """
    raise ended(context, lambda release: _put(release, shard, reason))


def resume(context: typer.Context, shard: SomeShard = None) -> None:
    """Have shards take messages again. Exit code 0: they do; 2: refused; 3: one does not answer."""
    raise ended(context, lambda release: _put(release, shard, None))


def _put(release: Release, number: int | None, reason: str | None) -> int:
    for shard in chosen_shards(release, number):
        with release.client(shard) as client:
            client.put_writes(paused=reason is not None, reason=reason or "")
        print(f"{shard.name}: {'takes messages' if reason is None else 'writes paused'}")
    return EXIT_FINE
