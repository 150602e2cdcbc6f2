"""``mqstore dlq ls``: prints the dead letters of a group."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from mqstore.cli import dlq_options as options
from mqstore.cli.output import Column, field_column
from mqstore.cli.session import Session, service_command
from mqstore.cli.times import show_time

LIMIT: Final = 100
_COLUMNS: Final = (
    field_column("dead-since", "dead_since", show_time, width=24),
    field_column("message-id", "offset_msg_id", width=32),
    field_column("source-topic", "source_topic", width=16),
    field_column("deliveries", "delivery_attempts", right=True),
    field_column("tags", "tags", width=8),
    Column("keys", lambda each: " ".join(each.keys) or each.uniq_key, width=16),
    field_column("reason", "reason"),
)


@service_command
@options.selecting
def ls(
    session: Session,
    group: options.Group,
    selection: options.Selection,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, help="Maximum number of dead letters.")
    ] = LIMIT,
) -> int:
    """Print the dead letters of a group that were not resent or purged, the newest first.

    In JSON, each with its properties and body on a line. Exit code 0: printed; 1: a shard is
    missing or a dead letter is damaged; 2: refused; 3: the query service does not answer.

    Examples:

    \b
        mqstore dlq ls billing
        mqstore dlq ls billing --from "1d ago" --reason timeout -o json
    """
    wanted = selection.filter()
    listing = options.Listing(session, group, wanted)
    session.out.rows(listing.letters(limit), _COLUMNS)
    return listing.code
