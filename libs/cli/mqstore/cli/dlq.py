"""``mqstore dlq …``: commands about the dead letters of a group."""

from __future__ import annotations

import typer

from mqstore.cli import dlq_ls, dlq_purge, dlq_resend

app = typer.Typer(
    help="Dead letters of a group: list, resend and purge them.", no_args_is_help=True
)
app.command("ls")(dlq_ls.ls)
app.command("resend")(dlq_resend.resend)
app.command("purge")(dlq_purge.purge)
