"""``mqstore message …``: commands about single messages."""

from __future__ import annotations

import typer

from mqstore.cli import follow, get, trace

app = typer.Typer(help="Find and follow messages.", no_args_is_help=True)
app.command("get")(get.get)
app.command("trace")(trace.trace)
app.command("follow")(follow.follow)


@app.callback()
def _message() -> None:
    """Messages of a running store."""
