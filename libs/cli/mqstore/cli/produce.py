"""``mqstore produce``: stores messages from arguments, from lines of stdin, or from JSON lines."""

from __future__ import annotations

import base64
import json
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from mqstore.cli.exit_codes import EXIT_OK, EXIT_REFUSED, EXIT_UNREACHABLE, refuse
from mqstore.cli.json_text import parse_json
from mqstore.cli.output import Column
from mqstore.cli.session import DryRun, Session, service_command
from mqstore.cli.stored_message import copy_fields
from mqstore.cli.times import FUTURE_HELP, parse_duration, parse_future, show_time
from mqstore.cli.topic import TopicName, pairs

if TYPE_CHECKING:
    from concurrent.futures import Future

    from mqstore.client import MessagePlace, NewMessage

Bodies = Annotated[
    list[str] | None,
    typer.Argument(help="Bodies, each a message. [default: each line of stdin]"),
]
Keys = Annotated[list[str] | None, typer.Option("--key", "-k", help="Index key. Repeatable.")]
Tag = Annotated[str | None, typer.Option("--tag", "-t", help="Tag, for filtering.")]
Properties = Annotated[
    list[str] | None,
    typer.Option("--property", "-p", metavar="NAME=VALUE", help="Property. Repeatable."),
]
OrderingKey = Annotated[
    str | None, typer.Option(help="Messages under one key go to one queue, in order.")
]
QueueId = Annotated[int | None, typer.Option(min=0, help="Queue. [default: in turn]")]
Delay = Annotated[
    str | None, typer.Option(metavar="DURATION", help="Deliver after it, as 90s or 1h30m.")
]
At = Annotated[str | None, typer.Option(metavar="TIME", help=f"Deliver then, {FUTURE_HELP}.")]
JsonLines = Annotated[
    bool,
    typer.Option(
        "--jsonl", help="Lines of stdin are JSON objects with the fields of the API's messages."
    ),
]
Sync = Annotated[bool, typer.Option("--sync", help="Reply when the message is on the disk.")]
Rate = Annotated[float | None, typer.Option(min=0.001, help="Messages a second, at most.")]

PATIENCE_S: Final = 30.0
"""Longest time in which a message of a stream is retried. One of the arguments is not."""
_FIELDS: Final[Mapping[str, tuple[str, type | tuple[type, ...]]]] = {
    "body": ("body", str),
    "bodyBase64": ("body", str),
    "tags": ("tags", (str, type(None))),
    "keys": ("keys", list),
    "properties": ("properties", dict),
    "queueId": ("queue_id", int),
    "orderingKey": ("ordering_key", str),
    "flag": ("flag", int),
    "delayLevel": ("delay_level", int),
    "delayS": ("delay_s", (int, float)),
    "deliverAt": ("deliver_at", (int, str)),
    "uniqKey": ("uniq_key", str),
}
"""Fields of a JSON line, those of the API, with parameters of a message of the client."""
_COLUMNS: Final = (
    Column("stored", lambda place: place.store_timestamp, show_time, width=24),
    Column("shard", lambda place: place.shard, right=True),
    Column("queue", lambda place: None if place.waits_in else place.queue_id, right=True),
    Column(
        "offset", lambda place: None if place.waits_in else place.queue_offset, right=True, width=10
    ),
    Column("message-id", lambda place: place.offset_msg_id, width=32),
    Column("unique-key", lambda place: place.uniq_key),
)


_DUE: Final = Column("due", lambda place: place.due_at, show_time, width=24)


@dataclass(frozen=True, slots=True)
class Template:
    """The fields that options give to each message."""

    fields: Mapping[str, Any]

    def message(self, own: Mapping[str, Any]) -> NewMessage:
        """A message; its own fields have precedence. Raises ValueError."""
        from mqstore.client import NewMessage

        return NewMessage(**{**self.fields, **own})


@service_command
def produce(
    session: Session,
    topic: TopicName,
    body: Bodies = None,
    key: Keys = None,
    tag: Tag = None,
    prop: Properties = None,
    ordering_key: OrderingKey = None,
    queue: QueueId = None,
    delay: Delay = None,
    at: At = None,
    jsonl: JsonLines = False,
    sync: Sync = False,
    rate: Rate = None,
    dry_run: DryRun = False,
) -> int:
    """Store messages in a topic.

    Exit code 2: a message was refused; those that are printed were stored.

    Examples:

    \b
        mqstore produce orders 'two teapots' --key order-1 --tag paid
        mqstore produce orders --delay 10m 'remind me'
        mqstore produce orders < lines.txt
        mqstore consume orders -o json | mqstore produce copy --jsonl --rate 100
    """
    if delay is not None and at is not None:
        raise ValueError("give --delay or --at, not both")
    if jsonl and body:
        raise ValueError("--jsonl reads stdin; leave the bodies out")
    template = Template(
        {
            "keys": key or (),
            "tags": tag,
            "properties": pairs(prop, "--property"),
            "ordering_key": ordering_key,
            "queue_id": queue,
            "delay_s": None if delay is None else parse_duration(delay) / 1000,
            "deliver_at": None if at is None else parse_future(at),
        }
    )
    messages = _messages(template, body, jsonl=jsonl)
    if dry_run:
        session.out.done(f"would store {sum(1 for _ in messages)} messages in {topic}")
        return EXIT_OK
    if not body or len(body) > 1:
        messages = in_turn(messages, _write_queues(session, topic))
    if rate is not None:
        messages = paced(messages, rate)
    sender = _Sender(session)
    may_wait = jsonl or delay is not None or at is not None
    with session.client.producer(
        topic,
        durability="sync" if sync else None,
        shard=session.access.shard,
        patience_s=0 if body else PATIENCE_S,
        linger_ms=0 if body else 5,
        on_delivery=lambda _: None,  # without one the producer logs each failure too
    ) as producer:
        columns = (_COLUMNS[0], _DUE, *_COLUMNS[1:]) if may_wait else _COLUMNS
        session.out.rows(sender.places(map(producer.send, messages)), columns)
    return sender.code


class _Sender:
    """Waits for the places of messages in their order, and reports those that failed.

    Messages in a row that failed for one reason are one line.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self.code = EXIT_OK
        self._why = ""
        self._first = self._last = 0
        """Numbers of the messages that failed for this reason; 0: none is to be reported."""

    def places(self, sent: Iterable[Future[MessagePlace]]) -> Iterator[MessagePlace]:
        """Yield the places of messages as they are known; futures are taken before that."""
        waiting: deque[tuple[int, Future[MessagePlace]]] = deque()
        for numbered in enumerate(sent, 1):
            waiting.append(numbered)
            while waiting and waiting[0][1].done():
                yield from self._place(*waiting.popleft())
        while waiting:
            yield from self._place(*waiting.popleft())
        self._report()

    def _place(self, number: int, future: Future[MessagePlace]) -> Iterator[MessagePlace]:
        from mqstore.client import ClientError, Unreachable

        try:
            place = future.result()
        except ClientError as error:
            is_lost = isinstance(error, Unreachable)
            self.code = max(self.code, EXIT_UNREACHABLE if is_lost else EXIT_REFUSED)
            detail = getattr(error, "detail", "") or str(error)
            self._note(number, f"{'perhaps not' if is_lost else 'not'} stored: {detail}")
        else:
            self._report()
            yield place

    def _note(self, number: int, why: str) -> None:
        if why != self._why:
            self._report()
        self._why, self._first, self._last = why, self._first or number, number

    def _report(self) -> None:
        if not self._first:
            return
        one = self._first == self._last
        which = (
            f"message {self._first} is" if one else f"messages {self._first} to {self._last} are"
        )
        refuse(f"{which} {self._why}")
        self._first = 0


def _write_queues(session: Session, topic: str) -> int:
    """Return the number of write queues of a topic; 0 if it is not known here: the token may not
    read it, or its first message creates it."""
    from mqstore.client import ProblemError

    try:
        return session.client.topic(topic).write_queues
    except ProblemError:
        return 0


def in_turn(messages: Iterable[NewMessage], queues: int) -> Iterator[NewMessage]:
    """Yield messages, each without a queue or an ordering key with the next queue.

    One request stores its messages in one queue, and a producer sends many in one request.
    """
    turn = 0
    for each in messages:
        if queues and each.queue_id is None and each.ordering_key is None:
            yield each.model_copy(update={"queue_id": turn % queues})
            turn += 1
        else:
            yield each


def paced(messages: Iterable[NewMessage], rate: float) -> Iterator[NewMessage]:
    """Yield messages at a rate: each at its own time since the first one."""
    started = time.monotonic()
    for number, message in enumerate(messages):
        time.sleep(max(0.0, started + number / rate - time.monotonic()))
        yield message


def _messages(template: Template, bodies: list[str] | None, *, jsonl: bool) -> Iterator[NewMessage]:
    if bodies:
        return (template.message({"body": body}) for body in bodies)
    lines = (line.rstrip(b"\r\n") for line in sys.stdin.buffer)
    if jsonl:
        return (
            template.message(fields_of_line(line, number))
            for number, line in enumerate(lines, 1)
            if line.strip()
        )
    return (template.message({"body": line}) for line in lines)


def fields_of_line(line: bytes, number: int) -> dict[str, Any]:
    """The parameters of a message in a JSON line; of a stored one, those of a copy.

    Raises ValueError, with the number of the line.
    """
    try:
        document = parse_json(line)
        if not isinstance(document, dict):
            raise ValueError("it is no object")
        if not {"body", "bodyBase64"} & document.keys():
            raise ValueError("it has neither body nor bodyBase64")
        return parameters_of(copy_fields(document) if "offsetMsgId" in document else document)
    except ValueError as error:
        raise ValueError(f"line {number} of stdin: {error}; nothing after it is stored") from None


def parameters_of(document: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a message that is given as JSON of the API. Raises ValueError."""
    found = {}
    for name, value in document.items():
        if name not in _FIELDS:
            raise ValueError(f"{name} is no field of a message; use {', '.join(_FIELDS)}")
        parameter, kind = _FIELDS[name]
        if not isinstance(value, kind):
            raise ValueError(f"{name} is {json.dumps(value)[:40]}")
        found[parameter] = _bytes_of(str(value)) if name == "bodyBase64" else value
    return found


def _bytes_of(encoded: str) -> bytes:
    try:
        return base64.b64decode(encoded, validate=True)
    except ValueError:
        raise ValueError("bodyBase64 is no base64") from None
