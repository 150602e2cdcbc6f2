"""``mqstore store …``: commands that work on a store directory itself."""

from __future__ import annotations

import typer

from mqstore.cli import dump, verify

app = typer.Typer(help="Look into a store directory.", no_args_is_help=True)
app.command("dump")(dump.dump)
app.command("verify")(verify.verify)


@app.callback()
def _store() -> None:
    """A store directory, ours or a RocketMQ broker's."""
