"""``mqstore message trace``: prints the copies of a message and the groups that consumed it."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import Annotated, Final

import typer

from mqstore.cli.exit_codes import EXIT_FINDINGS, EXIT_OK
from mqstore.cli.service_access import (
    Access,
    AsJson,
    Ca,
    QueryUrl,
    Shard,
    Token,
    TokenFile,
    in_json,
    print_json,
    run_with_client,
)
from mqstore.client import QUERY_URL, Client, MessageCopy, Trace

PAGES_MAX: Final = 100
"""Maximum number of pages that the command requests for one key."""


def trace(
    message: Annotated[
        str, typer.Argument(help="Offset message id; with --topic a unique key or a key.")
    ],
    topic: Annotated[str | None, typer.Option(help="Topic of the key.")] = None,
    shard: Shard = None,
    query_url: QueryUrl = QUERY_URL,
    token: Token = None,
    token_file: TokenFile = None,
    ca: Ca = None,
    as_json: AsJson = None,
) -> None:
    """Print the copies of a message (delayed, half, stored, sent back) and the groups past it.

    Exit code 0: printed; 1: a copy may be missing or is damaged, there is none, or there are more
    messages than are printed; 2: refused; 3: the query service does not answer.
    """

    def print_traces(client: Client) -> int:
        """Print the traces; returns the exit code."""
        if topic is None:
            return _print_all([client.trace(message).trace], in_lines=in_json(as_json))
        traces, there_are_more = _traces_with_key(client, topic, message)
        code = _print_all(traces, in_lines=in_json(as_json))
        if there_are_more:
            print(f"mqstore: there are more than these {len(traces)} messages", file=sys.stderr)
        return EXIT_FINDINGS if there_are_more else code

    access = Access(token, token_file, ca, shard)
    raise typer.Exit(run_with_client(access, print_traces, query_url=query_url))


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


def _print_all(traces: list[Trace], *, in_lines: bool) -> int:
    for each in traces:
        if in_lines:
            print_json(each)
        else:
            _print(each)
    return EXIT_OK if traces and all(each.complete for each in traces) else EXIT_FINDINGS


def _print(found: Trace) -> None:
    keys = " ".join(found.keys)
    print(f"{found.uniq_key or 'without a unique key'} of {found.topic}  keys {keys or '-'}")
    for copy in found.copies:
        print(
            f"  {_time(copy.store_timestamp)}  {copy.kind:<11} {copy.state:<11} "
            f"{copy.topic}/{copy.queue_id} #{copy.queue_offset}  {copy.offset_msg_id}"
        )
        for text in _details(copy):
            print(f"{'':28}{text}")
    for damaged in found.unreadable:
        print(f"  offset {damaged.physical_offset} cannot be read: {damaged.detail}")
    if not found.complete:
        print("  there may be copies that are not shown")


def _details(copy: MessageCopy) -> list[str]:
    found = [copy.why] if copy.why else []
    if copy.checked_by is not None:
        found.append("its block of the log is damaged: only its own checks vouch for it")
    if copy.origin_message_id is not None:
        found.append(f"{copy.group or 'a group'} sent back {copy.origin_message_id}")
    if copy.due_at is not None:
        found.append(f"due {_time(copy.due_at)}")
    for each in copy.groups:
        where = "no offset" if each.committed is None else f"at {each.committed}"
        found.append(
            f"{each.group} {'is past it' if each.consumed else 'is not there yet'}, {where}"
        )
    return found


def _time(milliseconds: int) -> str:
    at = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{milliseconds % 1000:03d}Z"
