"""``mqstore tx …``: lists and shows transactions, and resolves one by hand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from mqstore.cli.exit_codes import EXIT_FINDINGS, EXIT_OK, refuse
from mqstore.cli.output import Column, field_column
from mqstore.cli.session import DryRun, Session, Yes, service_command
from mqstore.cli.times import parse_duration, show_time

if TYPE_CHECKING:
    from mqstore.client import Transaction

Id = Annotated[str, typer.Argument(metavar="ID", help="Id of the transaction, as `ls` prints it.")]
LIMIT: Final = 100

_COLUMNS: Final = (
    field_column("begun", "born_timestamp", show_time),
    field_column("transaction", "transaction_id"),
    field_column("state", "state"),
    field_column("group", "producer_group"),
    field_column("messages", "messages", right=True),
    field_column("checks", "checks_sent", right=True),
    field_column("reason", "why"),
)
_DETAILS: Final = (
    *_COLUMNS[:-1],
    field_column("shard", "shard"),
    field_column("decided", "decided_at", show_time),
    Column("reason", lambda found: found.why or None),
)
_HALVES: Final = (
    field_column("topic", "topic"),
    field_column("queue", "queue_id", right=True),
    field_column("offset", "queue_offset", right=True),
    field_column("stored", "store_timestamp", show_time),
    field_column("checks", "check_times", right=True),
    field_column("unique-key", "uniq_key"),
)


@service_command
def ls(
    session: Session,
    state: Annotated[
        Literal["pending", "committed", "rolled-back", "set-aside"] | None,
        typer.Option(help="Only in this state. [default: pending and set-aside]"),
    ] = None,
    group: Annotated[
        str | None, typer.Option("--group", "-g", help="Only of this producer group.")
    ] = None,
    older_than: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Only begun so long ago, as 10m.")
    ] = None,
    count: Annotated[int, typer.Option("-n", min=1, help="Maximum number.")] = LIMIT,
) -> int:
    """List transactions, the oldest first. Exit code 1: a shard is missing.

    Examples:

    \b
        mqstore tx ls
        mqstore tx ls --state set-aside --older-than 1h -o json
    """
    code = EXIT_OK
    older_s = None if older_than is None else parse_duration(older_than) // 1000

    def found() -> Iterator[Transaction]:
        """Yield the transactions, page by page."""
        nonlocal code
        cursor, left = None, count
        while left > 0:
            page = session.client.transactions(
                state=state,
                group=group,
                older_than_s=older_s,
                limit=min(left, LIMIT),
                cursor=cursor,
            )
            yield from page.transactions
            for number in page.missing:
                code = EXIT_FINDINGS
                refuse(f"shard {number} is not included: it does not reply")
            left, cursor = left - len(page.transactions), page.next
            if cursor is None:
                return
        refuse(f"there may be more than these {count}; raise -n")

    session.out.items(found(), _COLUMNS)
    return code


@service_command
def info(session: Session, transaction: Id) -> None:
    """Show a transaction: its state, its checks, and its half messages.

    Examples:

    \b
        mqstore tx info 0-7F0000010000AEE0
        mqstore tx info 0-7F0000010000AEE0 -o yaml
    """
    found = session.client.transaction(transaction)
    session.out.item(found, _DETAILS)
    if session.out.is_table:
        session.out.line("")
        session.out.items(found.halves, _HALVES)


@service_command
def resolve(
    session: Session,
    transaction: Id,
    decision: Annotated[
        Literal["commit", "rollback"], typer.Argument(help="The decision.", metavar="DECISION")
    ],
    reason: Annotated[str, typer.Option(help="Reason, which the store keeps.")],
    yes: Yes = False,
    dry_run: DryRun = False,
) -> None:
    """Commit or roll back a transaction by hand, also one that was set aside. Needs role admin.

    Examples:

    \b
        mqstore tx resolve 0-7F0000010000AEE0 commit --reason "order 1 is paid" --dry-run
        mqstore tx resolve 0-7F0000010000AEE0 rollback --reason "order 1 was cancelled" --yes
    """
    found = session.client.transaction(transaction)
    text = f"{decision} {transaction} of {found.producer_group} ({found.state})"
    if dry_run:
        session.out.done(f"would {text}", found)
        return
    session.confirm(f"{text[0].upper()}{text[1:]}?", yes=yes)
    done = session.client.resolve_transaction(transaction, decision, reason)
    session.out.done(f"{transaction} is {done.state}", done)
