"""``mqstore consume``: prints messages of a topic, as a consumer group or without a trace."""

from __future__ import annotations

import contextlib
import heapq
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from mqstore.cli.completion import complete_group
from mqstore.cli.exit_codes import EXIT_FINDINGS, EXIT_OK, refuse
from mqstore.cli.session import Session, service_command
from mqstore.cli.stored_message import COLUMNS
from mqstore.cli.times import TIME_HELP, parse_when
from mqstore.cli.topic import TopicName
from mqstore.wire.limits import POLL_S

if TYPE_CHECKING:
    from mqstore.client import Message, Queue, UnreadableMessage

PAGE: Final = 32
"""Messages of one request."""
OFFSETS_BELOW: Final = 946_684_800_000
"""A number below it is an offset; from it on, milliseconds since the epoch (2000-01-01)."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The messages that a command reads."""

    topic: str
    tags: str | None
    sql: str | None
    queue: int | None
    start: str | None


@service_command
def consume(
    session: Session,
    topic: TopicName,
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            "-g",
            help="Consume as this shared group: printed messages are acknowledged."
            " [default: read without a trace]",
            autocompletion=complete_group,
        ),
    ] = None,
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="TIME|OFFSET|earliest|latest",
            help=f"Where to begin; a time {TIME_HELP}. [default: earliest; with --follow latest]",
        ),
    ] = None,
    count: Annotated[int | None, typer.Option("-n", min=1, help="Stop after so many.")] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Wait for new messages, until Ctrl-C.")
    ] = False,
    tags: Annotated[str | None, typer.Option(help="Only messages with these tags: A || B.")] = None,
    sql: Annotated[
        str | None, typer.Option(help="Only messages that match this SQL92 expression.")
    ] = None,
    queue: Annotated[int | None, typer.Option(min=0, help="Only this queue.")] = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="Print bodies only, each with a line end.")
    ] = False,
) -> int:
    """Print the messages of a topic, oldest first.

    Without a group nothing is committed: reading leaves no trace. Exit code 1: a message is
    damaged, or a shard is missing.

    Examples:

    \b
        mqstore consume orders -n 10
        mqstore consume orders --from "2h ago" --tags 'paid || shipped'
        mqstore consume orders --follow -o json | jq .body
        mqstore consume orders --queue 0 --from 4711 -n 1 --raw
        mqstore consume orders --group shipping -n 100
    """
    if not (start in (None, "earliest", "latest") or _is_offset(start)):
        _time_of(start)  # refused before a service is called
    wanted = Wanted(topic, tags, sql, queue, start)
    reading = _Reading(session)
    if group is not None:
        if queue is not None or start is not None:
            raise ValueError(
                "a group has its own position: leave --queue and --from out, or move it with"
                f" `mqstore group reset {group} {topic} --to TIME`"
            )
        messages = reading.consumed(group, wanted, count, follow=follow)
    elif follow:
        messages = islice(reading.followed(wanted), count)
    else:
        messages = islice(reading.stored(wanted), count)
    with contextlib.suppress(KeyboardInterrupt):
        if raw:
            _print_bodies(messages)
        else:
            session.out.rows(messages, COLUMNS)
    return reading.code


class _Reading:
    """Reads messages in one of three ways. ``code`` is 1 after a damaged one."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._client = session.client
        self.code = EXIT_OK

    def followed(self, wanted: Wanted) -> Iterator[Message]:
        """Yield messages as they arrive, without end."""
        since = None if wanted.start in (None, "latest") else _time_of(wanted.start or "")
        stream = self._client.follow(
            wanted.topic, from_ms=since, tags=wanted.tags, sql=wanted.sql, inflate=True
        )
        with contextlib.closing(stream) as events:
            for event in events:
                if event.unreadable is not None:
                    self._report([event.unreadable])
                found = event.message
                if found is not None and wanted.queue in (None, found.queue_id):
                    yield found

    def stored(self, wanted: Wanted) -> Iterator[Message]:
        """Yield the messages that are stored now, over all queues by store time."""
        found = self._client.queues(wanted.topic)
        self.code = max(self.code, self._session.warn_of_missing(found.shards))
        chosen = [each for each in found.queues if wanted.queue in (None, each.queue_id)]
        if not chosen:
            raise ValueError(
                f"{wanted.topic} has no queue {wanted.queue}; it has {len(found.queues)}"
            )
        begin = self._beginning(wanted)
        return heapq.merge(
            *(self._of_queue(wanted, each, begin(each)) for each in chosen),
            key=lambda message: message.store_timestamp,
        )

    def consumed(
        self, group: str, wanted: Wanted, count: int | None, *, follow: bool
    ) -> Iterator[Message]:
        """Yield messages that are leased to a group; acknowledge each batch that was printed."""
        from mqstore.client import WantedMessages

        topics = {wanted.topic: WantedMessages(tags=wanted.tags, sql=wanted.sql)}
        left = sys.maxsize if count is None else count
        while left > 0:
            wait_s = POLL_S if follow else 0.0
            batch = self._client.receive(group, topics, max_messages=min(PAGE, left), wait_s=wait_s)
            self._report(batch.unreadable)
            yield from batch.messages
            if batch.messages:
                self._client.acknowledge(group, batch.messages)
            elif not follow:
                return
            left -= len(batch.messages)

    def _of_queue(self, wanted: Wanted, queue: Queue, start: int) -> Iterator[Message]:
        offset = start
        while offset < queue.max_offset:
            page = self._client.pull(
                wanted.topic,
                queue.queue_id,
                offset,
                max_messages=PAGE,
                tags=wanted.tags,
                sql=wanted.sql,
                inflate=True,
                shard=queue.shard,
            )
            self._report(page.unreadable)
            for message in page.messages:
                if message.queue_offset >= queue.max_offset:
                    return
                yield message
            if page.next <= offset:
                return
            offset = page.next

    def _beginning(self, wanted: Wanted) -> Callable[[Queue], int]:
        start = wanted.start
        if start in (None, "earliest"):
            return lambda queue: queue.min_offset
        if start == "latest":
            return lambda queue: queue.max_offset
        if _is_offset(start):
            return lambda queue: max(queue.min_offset, int(start))
        results = self._client.offsets_by_time(_time_of(start), topics=wanted.topic).results
        by_queue = {(each.shard, each.queue_id): each.offset for each in results}
        return lambda queue: by_queue.get((queue.shard, queue.queue_id)) or queue.min_offset

    def _report(self, damaged: Iterable[UnreadableMessage]) -> None:
        for each in damaged:
            self.code = EXIT_FINDINGS
            refuse(f"offset {each.physical_offset} cannot be read: {each.detail}")


def _is_offset(start: str) -> bool:
    return start.isascii() and start.isdigit() and int(start) < OFFSETS_BELOW


def _time_of(start: str) -> int:
    return 0 if start == "earliest" else parse_when(start)


def _print_bodies(messages: Iterable[Any]) -> None:
    for message in messages:
        sys.stdout.buffer.write(message.body_bytes + b"\n")
        sys.stdout.buffer.flush()
