"""Arguments that several jobs take."""

from __future__ import annotations

from typing import Annotated

import typer

Shards = Annotated[
    list[str],
    typer.Argument(
        metavar="SHARD...",
        help="DIRECTORY, or QUERY,WRITER addresses, or DIRECTORY,WRITER. If one fails, the others"
        " finish.",
    ),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Report what the job would do; write nothing.")
]
TokenFile = Annotated[
    str | None,
    typer.Option(help="File with the bearer token for addresses; else MQSTORE_TOKEN_FILE."),
]
