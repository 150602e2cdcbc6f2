"""``mqstore bench …``: throughput and latency of a running system, as a client sees them.

At a rate each request has a time at which it is due. Its latency counts from then, not from the
time at which it was sent: requests that wait behind a slow one are as late as users see them
(coordinated omission). Without a rate each client sends its next request after the reply to the
last one.
"""

from __future__ import annotations

import contextlib
import math
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from mqstore.cli.exit_codes import EXIT_FINDINGS, EXIT_OK, refuse
from mqstore.cli.output import columns_of
from mqstore.cli.session import DryRun, Session, service_command
from mqstore.cli.topic import TopicName

if TYPE_CHECKING:
    from mqstore.client import Client, NewMessage

Request = Callable[[], int]
"""Sends one request; returns the number of its messages. 0 ends the client."""

Clients = Annotated[int, typer.Option(min=1, max=256, help="Clients, each with a connection.")]
Count = Annotated[int, typer.Option("-n", min=1, help="Messages, over all clients.")]
Size = Annotated[int, typer.Option(min=0, max=4 << 20, help="Bytes of a body.")]
Batch = Annotated[int, typer.Option(min=1, max=1000, help="Messages of a request.")]
Rate = Annotated[
    float | None,
    typer.Option(min=0.001, help="Messages a second, over all clients. [default: no limit]"),
]
PERCENTILES: Final = (50.0, 90.0, 99.0, 99.9)


@dataclass(frozen=True, slots=True)
class Load:
    """The requests of a run."""

    clients: int
    requests: int
    batch: int
    rate: float | None
    """Messages a second."""

    def due_s(self, number: int) -> float | None:
        """Seconds from the start at which a request is due; None: at once."""
        return None if self.rate is None else number * self.batch / self.rate


@service_command
def produce(
    session: Session,
    topic: TopicName,
    count: Count = 1000,
    clients: Clients = 1,
    size: Size = 128,
    batch: Batch = 1,
    rate: Rate = None,
    sync: Annotated[bool, typer.Option("--sync", help="Wait for the disk.")] = False,
    dry_run: DryRun = False,
) -> int:
    """Measure the storing of messages. They stay in the topic.

    Exit code 1: a request failed; the first reason is printed.

    Examples:

    \b
        mqstore bench produce load -n 10000 --clients 8
        mqstore bench produce load -n 10000 --rate 500 --size 1024 --sync -o csv
    """
    body = os.urandom(size)
    durability: Literal["sync"] | None = "sync" if sync else None

    def make(client: Client) -> Request:
        """The request of a client: one batch of messages."""
        messages = [_message(body) for _ in range(batch)]

        def send() -> int:
            """Store the batch."""
            return len(client.produce(topic, messages, durability=durability).messages)

        return send

    load = Load(clients, math.ceil(count / batch), batch, rate)
    return _measure(session, load, make, f"store {count} messages in {topic}", dry_run=dry_run)


@service_command
def consume(
    session: Session,
    topic: TopicName,
    group: Annotated[
        str, typer.Option("--group", "-g", help="Shared group that consumes, a new one for all.")
    ],
    count: Count = 1000,
    clients: Clients = 1,
    batch: Batch = 32,
    dry_run: DryRun = False,
) -> int:
    """Measure receiving and acknowledging of stored messages, until there are no more.

    The latency is that of a receive with its acknowledgement.

    Examples:

    \b
        mqstore bench consume load --group bench-1 -n 10000
        mqstore bench consume load --group bench-2 --clients 4 -o json
    """

    def make(client: Client) -> Request:
        """The request of a client: one batch of messages, acknowledged."""

        def receive() -> int:
            """Receive a batch and acknowledge it."""
            messages = client.receive(group, topic, max_messages=batch).messages
            if messages:
                client.acknowledge(group, messages)
            return len(messages)

        return receive

    load = Load(clients, math.ceil(count / batch), batch, None)
    return _measure(
        session, load, make, f"consume {count} messages of {topic} as {group}", dry_run=dry_run
    )


@service_command
def tx(
    session: Session,
    topic: TopicName,
    count: Count = 100,
    clients: Clients = 1,
    size: Size = 128,
    rate: Rate = None,
    dry_run: DryRun = False,
) -> int:
    """Measure transactions of one message: begin and commit. Their messages stay in the topic.

    Examples:

    \b
        mqstore bench tx load -n 1000 --clients 4
        mqstore bench tx load --rate 50 -o csv
    """
    body = os.urandom(size)

    def make(client: Client) -> Request:
        """The request of a client: one transaction."""

        def commit() -> int:
            """Begin a transaction and commit it."""
            begun = client.begin("mqstore-bench", topic, _message(body))
            client.commit_transaction(begun.transaction_id, reason="mqstore bench")
            return 1

        return commit

    load = Load(clients, count, 1, rate)
    return _measure(session, load, make, f"commit {count} transactions", dry_run=dry_run)


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The smallest value that is not below ``percent`` of all; they are sorted, and not empty."""
    return ordered[max(0, math.ceil(percent / 100 * len(ordered)) - 1)]


class Run:
    """One run of a load: its clients take requests by number, and note their latencies."""

    def __init__(self, load: Load, clock: Callable[[], float] = time.perf_counter) -> None:
        self._load, self._clock = load, clock
        self._lock = threading.Lock()
        self._next = 0
        self._started = clock()
        self.latencies_s: list[float] = []
        self.messages = 0
        self.failures: list[Exception] = []
        self.ended = self._started

    @property
    def seconds(self) -> float:
        """From the start to the last reply."""
        return max(1e-9, self.ended - self._started)

    def work(self, request: Request, sleep: Callable[[float], None] = time.sleep) -> None:
        """Send requests until there are no more: the loop of one client."""
        while (number := self._take()) is not None:
            began = self._clock()
            due_s = self._load.due_s(number)
            if due_s is not None:
                due = self._started + due_s
                if due > began:
                    sleep(due - began)
                began = due
            try:
                count = request()
            except Exception as error:  # reported at the end of the run
                self._fail(error)
                return
            if not count:
                return
            self._note(began, count)

    def _take(self) -> int | None:
        with self._lock:
            number, self._next = self._next, self._next + 1
            return number if number < self._load.requests and not self.failures else None

    def _note(self, began: float, count: int) -> None:
        with self._lock:
            self.ended = self._clock()
            self.latencies_s.append(self.ended - began)
            self.messages += count

    def _fail(self, error: Exception) -> None:
        with self._lock:
            self.failures.append(error)


def report(run: Run) -> dict[str, Any]:
    """The result of a run, with latencies in milliseconds."""
    ordered = sorted(run.latencies_s)
    latencies = {
        f"p{percent:g}Ms": round(percentile(ordered, percent) * 1000, 3) if ordered else None
        for percent in PERCENTILES
    }
    return {
        "messages": run.messages,
        "requests": len(ordered),
        "seconds": round(run.seconds, 3),
        "messagesPerS": round(run.messages / run.seconds, 1),
        **latencies,
        "maxMs": round(ordered[-1] * 1000, 3) if ordered else None,
    }


def _measure(
    session: Session,
    load: Load,
    make: Callable[[Client], Request],
    text: str,
    *,
    dry_run: bool,
) -> int:
    if dry_run:
        session.out.done(f"would {text}, with {load.clients} clients")
        return EXIT_OK
    with contextlib.ExitStack() as opened:
        requests = [
            make(opened.enter_context(session.access.client())) for _ in range(load.clients)
        ]
        run = Run(load)
        threads = [
            threading.Thread(target=run.work, args=(each,), daemon=True) for each in requests
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    found = report(run)
    session.out.item(found, columns_of(found))
    if not run.failures:
        return EXIT_OK if run.messages else EXIT_FINDINGS
    if not run.messages:
        raise run.failures[0]
    refuse(f"a request failed: {run.failures[0]}")
    return EXIT_FINDINGS


def _message(body: bytes) -> NewMessage:
    from mqstore.client import NewMessage

    return NewMessage(body=body)
