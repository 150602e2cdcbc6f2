"""``mqstore store …``: commands that work on a store directory itself."""

from __future__ import annotations

import typer

from mqstore.cli import accept_loss, adopt, dump, repair, verify

app = typer.Typer(help="Inspect, check and repair a store directory.", no_args_is_help=True)
app.command("dump")(dump.dump)
app.command("verify")(verify.verify)
app.command("repair")(repair.repair)
app.command("adopt")(adopt.adopt)
app.command("accept-loss")(accept_loss.accept_loss)


@app.callback()
def _store() -> None:
    """A store directory, ours or a RocketMQ broker's."""
