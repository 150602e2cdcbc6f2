"""From the acknowledgement of a produce until query answers the message, over HTTP on loopback.

store-writer and query are real processes as `mqstore run` starts them; the figures include the
query's own round trip. The aim is 5 ms at p99. With `bench_wakes`: who waits already.
"""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final
from urllib.parse import urlsplit

from tests.bench import bench_wakes
from tests.bench.failures import SideError
from tests.bench.harness import Bench, Figures, Metric, Setting
from tests.bench.stores import fresh_directory
from tests.bench.workload import TOPIC
from tests.services.service_processes import running

WARM: Final = 100
RECORDS_PER_MESSAGE: Final = 200
"""One message over HTTP costs about as much as this many puts in a process."""
PATIENCE_S: Final = 10.0

MakePath = Callable[[dict[str, Any]], str]
"""Makes the path at which query returns a message, from the acknowledgement."""


def by_id(message: dict[str, Any]) -> str:
    return f"/v1/messages/{message['offsetMsgId']}"


def by_key(message: dict[str, Any]) -> str:
    return f"/v1/topics/{TOPIC}/messages?key={message['uniqKey']}"


def by_queue(message: dict[str, Any]) -> str:
    queue, offset = message["queueId"], message["queueOffset"]
    return f"/v1/topics/{TOPIC}/queues/{queue}/messages?offset={offset}&max=1"


def benches(setting: Setting) -> Iterator[Bench]:
    messages = max(200, setting.records // RECORDS_PER_MESSAGE)
    for name, path in (("by id", by_id), ("by key", by_key), ("by queue offset", by_queue)):
        metrics = [
            Metric(key, f"visible after ack, {name}, {key}", "ms", higher_is_better=False)
            for key in ("p50", "p99")
        ]
        yield Bench(metrics, partial(_ours, setting, path, messages))
    yield from bench_wakes.benches(setting)


def _ours(setting: Setting, path: MakePath, messages: int) -> Figures:
    with fresh_directory(setting.directory) as root, running(root / "store") as run:
        writer, query = _connect(run.writer_url), _connect(run.query_url)
        _request(writer, "PUT", f"/v1/topics/{TOPIC}", {"queues": 4})
        waits = [_wait(writer, query, path) for _ in range(WARM + messages)][WARM:]
        writer.close()
        query.close()
    waits.sort()
    return {"p50": waits[len(waits) // 2] * 1000, "p99": waits[int(len(waits) * 0.99)] * 1000}


def _wait(
    writer: http.client.HTTPConnection, query: http.client.HTTPConnection, path: MakePath
) -> float:
    """Seconds from a message's acknowledgement to query's answer."""
    produce = {"messages": [{"body": "x" * 1024, "tags": "paid"}], "durability": "async"}
    status, answer = _request(writer, "POST", f"/v1/topics/{TOPIC}/messages", produce)
    if status != http.client.CREATED:
        raise SideError(f"produce: {answer}")
    message = answer["messages"][0]
    began = time.perf_counter()
    while not _answers(query, path(message), message["offsetMsgId"]):
        if time.perf_counter() - began > PATIENCE_S:
            raise SideError(f"query does not answer {path(message)}")
    return time.perf_counter() - began


def _answers(query: http.client.HTTPConnection, path: str, message_id: str) -> bool:
    status, answer = _request(query, "GET", path)
    found = answer.get("messages", [answer]) if status == http.client.OK else []
    return any(each["offsetMsgId"] == message_id for each in found)


def _connect(url: str) -> http.client.HTTPConnection:
    connection = http.client.HTTPConnection(urlsplit(url).netloc)
    connection.connect()
    connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def _request(
    connection: http.client.HTTPConnection, method: str, path: str, body: object = None
) -> tuple[int, dict[str, Any]]:
    content = None if body is None else json.dumps(body)
    connection.request(method, path, content, {"content-type": "application/json"})
    response = connection.getresponse()
    answer: dict[str, Any] = json.loads(response.read())
    return response.status, answer
