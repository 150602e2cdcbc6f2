"""The documented loops of the Python client, beside plain HTTP requests over one connection.

The service is the same, and so are the messages: bodies of 200 bytes. The ratio is what the client
costs its application. Plain requests are made by ``http.client``: receives and acknowledgements in
batches of BATCH, and sends of one message.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from http.client import HTTPConnection
from typing import Any, Final
from urllib.parse import urlsplit

from mqstore.client import AsyncClient, Client, NewMessage
from tests.bench import servers
from tests.bench.failures import SideError
from tests.bench.harness import Bench, Figures, Metric, Setting, cost
from tests.bench.workload import TOPIC
from tests.services.service_processes import Run

BODY: Final = "x" * 200
BATCH: Final = 32
SHARE: Final = 10
"""A message costs the client about as much as so many puts in a process."""
SINGLE_SHARE: Final = 200
"""The same of a send that waits for its reply."""
FILL: Final = 100
PEER: Final = "plain HTTP requests over one connection"


def benches(setting: Setting) -> Iterator[Bench]:
    """Loops over a backlog, and sends."""
    count = max(BATCH, setting.records // SHARE)
    with servers.services(setting) as run, run.client() as client:
        for first in range(0, count, FILL):
            messages = [NewMessage(body=BODY) for _ in range(min(FILL, count - first))]
            client.produce(TOPIC, messages)
        groups = (f"group-{number}" for number in itertools.count())
        plain_batches = _timed(partial(_plain_batches, run, groups, count), count)
        for name, loop in (
            ("loop of the client", partial(_loop, client, groups, count)),
            ("loop of the client for asyncio", partial(_asynchronous_loop, run, groups, count)),
        ):
            yield Bench(_metrics(name), _timed(loop, count), plain_batches, processes={})
        few = max(1, setting.records // SINGLE_SHARE)
        plain = _timed(partial(_plain_sends, run, few), few)
        yield Bench(
            _metrics("client.produce, one by one"),
            _timed(partial(_sends, client, few), few),
            plain,
            processes={},
        )
        produced = _timed(partial(_produced, client, count), count)
        yield Bench(_metrics("producer.send"), produced, plain, processes={})


def _metrics(name: str) -> list[Metric]:
    return [Metric("rate", name, "messages/s"), cost(name)]


def _timed(work: Callable[[], object], count: int) -> Callable[[], Figures]:
    def measure() -> Figures:
        began, cpu = time.perf_counter(), time.process_time()
        work()
        seconds = time.perf_counter() - began
        return {"rate": count / seconds, "cost": (time.process_time() - cpu) / count * 1e6}

    return measure


def _loop(client: Client, groups: Iterator[str], count: int) -> None:
    with client.consumer(next(groups), TOPIC) as consumer:
        for message in itertools.islice(consumer, count):
            message.ack()
        consumer.flush()


def _asynchronous_loop(run: Run, groups: Iterator[str], count: int) -> None:
    async def consume() -> None:
        async with (
            AsyncClient(run.writer_url, run.query_url) as client,
            client.consumer(next(groups), TOPIC) as consumer,
        ):
            left = count
            async for message in consumer:
                message.ack()
                left -= 1
                if not left:
                    break
            await consumer.flush()

    asyncio.run(consume())


def _plain_batches(run: Run, groups: Iterator[str], count: int) -> None:
    connection, group = _connection(run), next(groups)
    wanted = {"topics": {TOPIC: {}}, "max": BATCH, "wait": 5}
    while count > 0:
        found = _post(connection, f"/v1/groups/{group}:receive", wanted)["messages"]
        if not found:
            raise SideError(f"{count} messages were not received")
        receipts = {"receipts": [each["receipt"] for each in found]}
        _post(connection, f"/v1/groups/{group}:ack", receipts)
        count -= len(found)
    connection.close()


def _sends(client: Client, count: int) -> None:
    for _ in range(count):
        client.produce(TOPIC, NewMessage(body=BODY))


def _produced(client: Client, count: int) -> None:
    with client.producer(TOPIC) as producer:
        for _ in range(count):
            producer.send(BODY)


def _plain_sends(run: Run, count: int) -> None:
    connection = _connection(run)
    for _ in range(count):
        _post(connection, f"/v1/topics/{TOPIC}/messages", {"messages": [{"body": BODY}]})
    connection.close()


def _connection(run: Run) -> HTTPConnection:
    parts = urlsplit(run.writer_url)
    assert parts.hostname is not None
    return HTTPConnection(parts.hostname, parts.port)


def _post(connection: HTTPConnection, path: str, body: dict[str, Any]) -> Any:
    connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
    reply = connection.getresponse()
    text = reply.read()
    if reply.status not in (200, 201):
        raise SideError(f"{path}: {reply.status} {text[:200]!r}")
    return json.loads(text)
