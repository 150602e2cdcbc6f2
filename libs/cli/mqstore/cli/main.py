"""The ``mqstore`` command. Each command is a module of its own, registered here."""

from __future__ import annotations

import typer

from mqstore.cli import dlq, events, follow_leader, lag, message, promote, run, shard, store

app = typer.Typer(
    name="mqstore",
    help="RocketMQ's message store: run, inspect and maintain it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.command("run")(run.run)
app.command("follow")(follow_leader.follow_leader)
app.command("promote")(promote.promote)
app.command("lag")(lag.lag)
app.command("events")(events.events)
app.add_typer(dlq.app, name="dlq")
app.add_typer(message.app, name="message")
app.add_typer(shard.app, name="shard")
app.add_typer(store.app, name="store")

if __name__ == "__main__":
    app()
