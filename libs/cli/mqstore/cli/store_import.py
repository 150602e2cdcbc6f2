"""``mqstore store import``: messages of a file into a store; see ``import_lines``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mqstore.cli.extras import require
from mqstore.cli.message_selection import FromTime, Keys, Topics, UntilTime
from mqstore.cli.options import HashSlots, IndexNum, StoreDirectory
from mqstore.cli.session import DryRun


def import_messages(
    directory: StoreDirectory,
    file: Annotated[Path, typer.Argument(help="File of an export.", metavar="FILE")],
    form: Annotated[
        str | None, typer.Option("--format", metavar="jsonl|parquet", help="Form of the file.")
    ] = None,
    topic: Topics = None,
    from_time: FromTime = None,
    until_time: UntilTime = None,
    key: Keys = None,
    create: Annotated[
        str | None,
        typer.Option(metavar="4.9|5.x", help="Make the store, of this format, where DIR is empty."),
    ] = None,
    restart: Annotated[
        bool, typer.Option("--restart", help="Forget an interrupted import, and begin with FILE.")
    ] = False,
    dry_run: DryRun = False,
    hash_slots: HashSlots = None,
    index_num: IndexNum = None,
) -> None:
    """Store the messages of an export in a store that no process has open.

    Keeps topic, queue, order, body, properties with keys and tags, flags, born time and host, and
    the store time where it is not before that of the message before it. Message ids, physical and
    queue offsets are new. All lines are checked before the first message is stored; bad lines are
    named by number. After an interruption, the same command continues. Exit code 0: all are
    stored; 2: refused, with the number of messages that are stored.

    Examples:

    \b
        mqstore store import /data/store orders.jsonl --dry-run
        mqstore store import /data/store orders.jsonl
        mqstore store import /data/new recent.parquet --create 5.x
    """
    require("store")
    from mqstore.cli import import_lines  # slow, and not needed for help

    choice = import_lines.Choice(
        file, form, topic, from_time, until_time, key, create, restart, dry_run
    )
    raise typer.Exit(import_lines.run(directory, choice, hash_slots, index_num))
