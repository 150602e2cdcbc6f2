"""``mqstore message …``: finds messages by key or time, and sends them again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Final

import typer

from mqstore.cli.exit_codes import EXIT_FINDINGS, EXIT_OK, refuse
from mqstore.cli.produce import parameters_of
from mqstore.cli.session import DryRun, Session, service_command
from mqstore.cli.stored_message import COLUMNS, copy_fields
from mqstore.cli.times import TIME_HELP, parse_when
from mqstore.cli.topic import TopicName

if TYPE_CHECKING:
    from mqstore.client import Message, Messages, NewMessage

Since = Annotated[
    str | None,
    typer.Option("--from", metavar="TIME", help=f"Only stored then or later, {TIME_HELP}."),
]
Until = Annotated[
    str | None,
    typer.Option("--until", metavar="TIME", help=f"Only stored then or before, {TIME_HELP}."),
]
Count = Annotated[int, typer.Option("-n", min=1, help="Maximum number of messages.")]
LIMIT: Final = 100
PAGE: Final = 64


@service_command
def find(
    session: Session,
    topic: TopicName,
    key: Annotated[str, typer.Argument(help="Key or unique key.")],
    since: Since = None,
    until: Until = None,
    count: Count = LIMIT,
) -> int:
    """Find the messages of a topic with a key, the newest first.

    Exit code 1: there is none, or the search is not complete.

    Examples:

    \b
        mqstore message find orders order-1
        mqstore message find orders order-1 --from "1d ago" -o json
    """
    from_ms, to_ms = _time_of(since), _time_of(until)
    return _print_pages(
        session,
        lambda limit, cursor: session.client.messages_by_key(
            topic, key, from_ms=from_ms, to_ms=to_ms, limit=limit, cursor=cursor
        ),
        count,
    )


@service_command
def ls(
    session: Session,
    topic: TopicName,
    since: Since = None,
    until: Until = None,
    oldest: Annotated[bool, typer.Option("--oldest", help="The oldest first.")] = False,
    count: Count = LIMIT,
) -> int:
    """List the messages of a topic by store time, the newest first.

    Exit code 1: there is none, or the list is not complete.

    Examples:

    \b
        mqstore message ls orders -n 10
        mqstore message ls orders --from "2h ago" --until "1h ago" -o csv
    """
    from_ms, to_ms = _time_of(since), _time_of(until)
    return _print_pages(
        session,
        lambda limit, cursor: session.client.messages_by_time(
            topic,
            from_ms=from_ms,
            to_ms=to_ms,
            order="oldest" if oldest else "newest",
            limit=limit,
            cursor=cursor,
        ),
        count,
    )


@service_command
def resend(
    session: Session,
    ids: Annotated[
        list[str],
        typer.Argument(metavar="ID...", help="Offset message ids; with --topic unique keys."),
    ],
    topic: Annotated[str | None, typer.Option(help="Topic of the unique keys.")] = None,
    to: Annotated[
        str | None, typer.Option(metavar="TOPIC", help="Topic that gets them. [default: their own]")
    ] = None,
    dry_run: DryRun = False,
) -> int:
    """Store messages again: copies with the same body, tags, keys and properties.

    All groups of the topic receive the copies; `mqstore dlq resend` is for dead letters.

    Examples:

    \b
        mqstore message resend 7F0000010000AEE00000000000000000 --dry-run
        mqstore message resend KEY --topic orders --to orders-copy
    """
    client = session.client
    for each in ids:
        found = client.message(each, topic=topic, inflate=True)
        target = to or found.topic
        if dry_run:
            session.out.done(f"would store {each} again in {target}", found)
            continue
        copy = _copy(session, found, each, topic)
        (place,) = client.produce(target, copy, shard=session.access.shard).messages
        session.out.done(f"stored {each} again in {target} as {place.offset_msg_id}", place)
    return EXIT_OK


def _copy(session: Session, found: Message, message_id: str, topic: str | None) -> NewMessage:
    from mqstore.client import NewMessage

    fields = parameters_of(copy_fields(found.model_dump(mode="json", by_alias=True)))
    body = session.client.message_body(message_id, topic=topic, inflate=bool(found.compression))
    return NewMessage(**{**fields, "body": body.content})


def _time_of(given: str | None) -> int | None:
    return None if given is None else parse_when(given)


def _print_pages(
    session: Session, page_of: Callable[[int, str | None], Messages], count: int
) -> int:
    listing = _Listing(session)
    session.out.rows(listing.messages(page_of, count), COLUMNS)
    return listing.code


class _Listing:
    """The messages of pages, and the exit code: 1 if some may be missing, or there is none."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._found, self._worst = 0, EXIT_OK

    @property
    def code(self) -> int:
        """The exit code of what was listed so far."""
        return self._worst if self._found else EXIT_FINDINGS

    def messages(
        self, page_of: Callable[[int, str | None], Messages], count: int
    ) -> Iterator[Message]:
        """Yield ``count`` messages, page by page."""
        cursor: str | None = None
        while self._found < count:
            page = page_of(min(PAGE, count - self._found), cursor)
            self._found += len(page.messages)
            yield from page.messages
            self._worst = max(self._worst, self._session.warn_of_missing(page.shards))
            for damaged in page.unreadable:
                self._worst = EXIT_FINDINGS
                refuse(f"offset {damaged.physical_offset} cannot be read: {damaged.detail}")
            cursor = page.next
            if cursor is None:
                return
        refuse(f"there may be more than these {count}; raise -n")
