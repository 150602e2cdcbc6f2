"""Arguments that several commands take."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

# readable=False: the command itself reports an unreadable directory, in its own output format.
StoreDirectory = Annotated[
    Path, typer.Argument(help="The store directory.", metavar="DIR", readable=False)
]
HashSlots = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="maxHashSlotNum of the index files; default: format.json's, else as the files show.",
    ),
]
IndexNum = Annotated[
    int | None,
    typer.Option(
        min=2,
        help="maxIndexNum of the index files; default: format.json's, else as the files show.",
    ),
]
Act = Annotated[
    bool, typer.Option("--yes", help="Do what the plan says. Without it only the plan is printed.")
]
PlanOnly = Annotated[bool, typer.Option("--dry-run", help="Print the plan only, also with --yes.")]
