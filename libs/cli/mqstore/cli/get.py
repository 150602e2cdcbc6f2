"""``mqstore message get``: prints messages by their ids."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Final

import typer

from mqstore.cli.exit_codes import EXIT_FINDINGS, EXIT_OK, refuse
from mqstore.cli.output import Column, field_column
from mqstore.cli.session import Session, service_command
from mqstore.cli.stored_message import COLUMNS

if TYPE_CHECKING:
    from mqstore.client import Client, MessageResult

BATCH: Final = 100
"""Ids of one request."""
FROM_STDIN: Final = "-"
_COLUMNS: Final = (
    field_column("id", "id", width=32),
    Column("topic", lambda result: result.message.topic, width=16),
    *(each.within("message") for each in COLUMNS if each.heading != "message-id"),
)


@service_command
def get(
    session: Session,
    ids: Annotated[
        list[str],
        typer.Argument(
            metavar="ID...",
            help="Offset message ids; with --topic unique keys. `-` reads them from stdin, one a"
            " line.",
        ),
    ],
    topic: Annotated[str | None, typer.Option(help="Topic of the unique keys.")] = None,
) -> int:
    """Print messages by their ids, in the order of the ids.

    Exit code 0: printed; 1: an id has no message, whose problem is printed; 2: refused; 3: the
    query service does not answer.

    Examples:

    \b
        mqstore message get 7F0000010000AEE00000000000000000
        mqstore message get KEY --topic orders -o json
        mqstore message get - < ids.txt
    """
    code = EXIT_OK

    def results() -> Iterator[MessageResult]:
        """Yield the results to print; a problem is printed to stderr unless it is JSON or YAML."""
        nonlocal code
        wanted = _each(ids)
        while batch := list(islice(wanted, BATCH)):
            for result in _results(session.client, batch, topic):
                if result.problem is not None:
                    code = EXIT_FINDINGS
                if result.problem is None or session.out.is_document:
                    yield result
                else:
                    refuse(f"{result.id}: {result.problem.detail}")

    session.out.rows(results(), _COLUMNS)
    return code


def _each(ids: Sequence[str]) -> Iterator[str]:
    for given in ids:
        if given == FROM_STDIN:
            yield from filter(None, map(str.strip, sys.stdin))
        else:
            yield given


def _results(client: Client, ids: Sequence[str], topic: str | None) -> Iterator[MessageResult]:
    while ids:
        found = client.messages_by_id(ids, topic=topic)
        yield from found.results
        ids = found.remaining
