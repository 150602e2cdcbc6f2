"""``mqstore shard``: commands about the shards and the copies of their stores."""

from __future__ import annotations

import typer

from mqstore.cli import shard_ls

app = typer.Typer(help="Shards and the copies of their stores.", no_args_is_help=True)
app.command("ls")(shard_ls.ls)
