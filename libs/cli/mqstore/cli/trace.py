"""``mqstore message trace``: prints the copies of a message and the groups that consumed it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from mqstore.cli.exit_codes import EXIT_FINDINGS, EXIT_OK, refuse
from mqstore.cli.output import Column
from mqstore.cli.session import Session, service_command
from mqstore.cli.times import show_time

if TYPE_CHECKING:
    from mqstore.client import Client, MessageCopy, Trace

PAGES_MAX: Final = 100
"""Maximum number of pages that the command requests for one key."""
_COPIES: Final = (
    Column("unique-key", lambda row: row[0].uniq_key),
    Column("stored", lambda row: row[1].store_timestamp),
    Column("kind", lambda row: row[1].kind),
    Column("state", lambda row: row[1].state),
    Column("topic", lambda row: row[1].topic),
    Column("queue", lambda row: row[1].queue_id),
    Column("offset", lambda row: row[1].queue_offset),
    Column("message-id", lambda row: row[1].offset_msg_id),
)


@service_command
def trace(
    session: Session,
    message: Annotated[
        str, typer.Argument(help="Offset message id; with --topic a unique key or a key.")
    ],
    topic: Annotated[str | None, typer.Option(help="Topic of the key.")] = None,
) -> int:
    """Print the copies of a message (delayed, half, stored, sent back) and the groups past it.

    Exit code 0: printed; 1: a copy may be missing or is damaged, there is none, or there are more
    messages than are printed; 2: refused; 3: the query service does not answer.

    Examples:

    \b
        mqstore message trace 7F0000010000AEE00000000000000000
        mqstore message trace order-1 --topic orders
    """
    if topic is None:
        return _print_all(session, [session.client.trace(message).trace])
    traces, there_are_more = _traces_with_key(session.client, topic, message)
    code = _print_all(session, traces)
    if there_are_more:
        refuse(f"there are more than these {len(traces)} messages")
    return EXIT_FINDINGS if there_are_more else code


def _traces_with_key(client: Client, topic: str, key: str) -> tuple[list[Trace], bool]:
    """Traces of the messages with a key, and whether there are more than ``PAGES_MAX`` pages."""
    found: dict[str, Trace] = {}
    cursor: str | None = None
    for _ in range(PAGES_MAX):
        page = client.traces(topic, key, cursor=cursor)
        for each in page.traces:
            found.setdefault(each.uniq_key or each.copies[0].offset_msg_id, each)
        cursor = page.next
        if cursor is None:
            break
    return list(found.values()), cursor is not None


def _print_all(session: Session, traces: list[Trace]) -> int:
    if session.out.is_table:
        for each in traces:
            _print(session, each)
    elif session.out.is_document:
        session.out.items(traces, ())
    else:
        session.out.items([(each, copy) for each in traces for copy in each.copies], _COPIES)
    return EXIT_OK if traces and all(each.complete for each in traces) else EXIT_FINDINGS


def _print(session: Session, found: Trace) -> None:
    keys = " ".join(found.keys)
    session.out.line(
        f"{found.uniq_key or 'without a unique key'} of {found.topic}  keys {keys or '-'}"
    )
    for copy in found.copies:
        session.out.line(
            f"  {show_time(copy.store_timestamp)}  {copy.kind:<11} {copy.state:<11} "
            f"{copy.topic}/{copy.queue_id} #{copy.queue_offset}  {copy.offset_msg_id}"
        )
        for text in _details(copy):
            session.out.line(f"{'':28}{text}")
    for damaged in found.unreadable:
        session.out.line(f"  offset {damaged.physical_offset} cannot be read: {damaged.detail}")
    if not found.complete:
        session.out.line("  there may be copies that are not shown")


def _details(copy: MessageCopy) -> list[str]:
    found = [copy.why] if copy.why else []
    if copy.checked_by is not None:
        found.append("its block of the log is damaged: only its own checks vouch for it")
    if copy.origin_message_id is not None:
        found.append(f"{copy.group or 'a group'} sent back {copy.origin_message_id}")
    if copy.due_at is not None:
        found.append(f"due {show_time(copy.due_at)}")
    for each in copy.groups:
        where = "no offset" if each.committed is None else f"at {each.committed}"
        found.append(
            f"{each.group} {'is past it' if each.consumed else 'is not there yet'}, {where}"
        )
    return found
