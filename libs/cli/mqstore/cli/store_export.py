"""``mqstore store export``: the messages of a store as JSON lines or Parquet; see
``export_lines``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mqstore.cli.extras import require
from mqstore.cli.message_selection import FromTime, Keys, Topics, UntilTime
from mqstore.cli.options import HashSlots, IndexNum, StoreDirectory


def export(
    directory: StoreDirectory,
    to: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="A new file, Parquet if it ends in .parquet. [default: stdout]"
        ),
    ] = None,
    form: Annotated[
        str | None, typer.Option("--format", metavar="jsonl|parquet", help="Form of the file.")
    ] = None,
    topic: Topics = None,
    from_time: FromTime = None,
    until_time: UntilTime = None,
    key: Keys = None,
    hash_slots: HashSlots = None,
    index_num: IndexNum = None,
) -> None:
    """Write the messages of a store as JSON lines or Parquet, in the order of the log.

    Changes nothing. Topics of RocketMQ's own (delayed, half and op messages) are left out. Parquet
    needs the extra `parquet`. FILE has its name once it is complete. Exit code 0: all of it; 1:
    some messages cannot be read, which are counted on stderr, or a topic has none; 2: refused.

    Examples:

    \b
        mqstore store export /data/store --topic orders > orders.jsonl
        mqstore store export /data/store --from '2h ago' --to recent.parquet
        mqstore store export /data/store --key order-1 | jq .properties
    """
    require("store")
    from mqstore.cli import export_lines  # slow, and not needed for help

    choice = export_lines.Choice(to, form, topic, from_time, until_time, key)
    raise typer.Exit(export_lines.run(directory, choice, hash_slots, index_num))
