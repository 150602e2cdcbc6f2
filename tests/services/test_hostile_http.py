"""Requests that HTTP forbids, over real sockets: refused, and the connection ends."""

from __future__ import annotations

import contextlib
import itertools
import json
import signal
import socket
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

import httpx
import pytest

from tests.services.service_processes import Process, Run, writer

HEADER_SIZE = 4096
TIMEOUT_S = 1.0
"""receiveTimeoutS of the service; the test waits for what happens then."""


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    limits = {"max_header_size": HEADER_SIZE, "receive_timeout_s": TIMEOUT_S}
    with writer(tmp_path_factory.mktemp("store") / "store", **limits) as found:
        httpx.put(f"{found.url}/v1/topics/t", json={"queues": 1}).raise_for_status()
        yield found


def send(process: Process, *parts: bytes) -> bytes:
    """All that is answered until the connection ends."""
    with socket.create_connection(("127.0.0.1", process.port), timeout=60) as connection:
        for part in parts:
            connection.sendall(part)
        return b"".join(iter(lambda: connection.recv(65536), b""))


def answer(process: Process, *parts: bytes) -> tuple[int, str]:
    """Status and detail of the one problem that is answered."""
    head, _, body = send(process, *parts).partition(b"\r\n\r\n")
    assert b"connection: close" in head.lower()
    return int(head.split()[1]), json.loads(body)["detail"]


def head(*fields: bytes, path: bytes = b"/v1/topics", method: bytes = b"GET") -> bytes:
    return b"\r\n".join((b"%b %b HTTP/1.1" % (method, path), *fields, b"", b""))


POST = b"/v1/topics/t/messages"
BODY = b'{"messages":[{"body":"x"}]}'
JSON = b"content-type: application/json"
LENGTH = b"content-length: %d" % len(BODY)


def test_bytes_behind_a_refused_head_change_nothing(tmp_path: Path) -> None:
    twice = head(b"host: localhost", b"host: localhost")
    with writer(tmp_path / "store") as process:
        for garbage in (b"\x00\xff garbage\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", twice):
            status, detail = answer(process, twice + garbage)
            assert (status, detail) == (400, "header host is given 2 times; send it once")
        process.process.send_signal(signal.SIGTERM)
        code, log = process.ended()
    assert (code, "write() after" in log) == (0, False)


def test_every_reply_forbids_to_guess_its_type(process: Process) -> None:
    for path in ("/v1/topics", "/v1/store", "/healthz/live", "/metrics", "/nowhere", "/docs"):
        found = httpx.get(process.url + path)
        assert found.headers.get_list("x-content-type-options") == ["nosniff"], path
    sent = httpx.post(f"{process.url}/v1/topics/t/messages", json={"messages": [{"body": "x"}]})
    assert sent.headers["x-content-type-options"] == "nosniff"
    twice = head(b"host: localhost", b"host: localhost")
    assert b"x-content-type-options: nosniff" in send(process, twice)


@pytest.mark.parametrize("path", [b"/v1/topics", POST, b"/%68ealthz/live", b"/healthz/live"])
@pytest.mark.parametrize(
    "fields",
    [
        (b"host: localhost", b"host: localhost"),
        (b"host: localhost", b"Host: example.org"),
        (b"host: localhost", b"authorization: Bearer a", b"Authorization: Bearer b"),
    ],
)
def test_a_host_or_token_that_is_given_twice_is_refused(
    process: Process, path: bytes, fields: tuple[bytes, ...]
) -> None:
    method, body = (b"POST", BODY) if path == POST else (b"GET", b"")
    given = (*fields, JSON, LENGTH) if body else fields
    status, detail = answer(process, head(*given, path=path, method=method) + body)
    assert (status, "2 times" in detail) == (400, True)


@pytest.mark.parametrize(
    "fields",
    [
        (b"transfer-encoding: gzip, chunked",),
        (b"transfer-encoding: x-unknown",),
        (b"transfer-encoding: identity",),
        (b"transfer-encoding: gzip", b"transfer-encoding: chunked"),
        (b"transfer-encoding: chunked, chunked",),
        (b"transfer-encoding: chunked", LENGTH),
    ],
)
def test_an_unknown_transfer_coding_is_refused(process: Process, fields: tuple[bytes, ...]) -> None:
    chunked = b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)
    sent = head(b"host: localhost", JSON, *fields, path=POST, method=b"POST") + chunked
    assert answer(process, sent)[0] == 400


def test_chunks_are_taken(process: Process) -> None:
    chunked = b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)
    fields = (b"host: localhost", b"connection: close", JSON, b"Transfer-Encoding: Chunked")
    assert send(process, head(*fields, path=POST, method=b"POST") + chunked)[9:12] == b"201"


@pytest.mark.parametrize("path", [b"/v1/topics", b"/healthz/live"])
@pytest.mark.parametrize("size", [HEADER_SIZE + 1, 60_000])
def test_a_head_that_is_too_large_is_refused_though_it_arrives_in_one_write(
    process: Process, path: bytes, size: int
) -> None:
    whole = head(b"host: localhost", b"x-large: " + b"x" * size, path=path)
    status, detail = answer(process, whole)
    assert (status, detail) == (431, f"more than {HEADER_SIZE} bytes")
    status, _ = answer(process, whole[:2000], whole[2000:])
    assert status == 431
    assert answer(process, head(b"host: localhost", path=path + b"?" + b"x" * size))[0] == 431
    many = head(b"host: localhost", *[b"x-%d: y" % number for number in range(size // 5)])
    assert answer(process, many)[0] == 431


def test_a_head_within_the_limit_is_answered(process: Process) -> None:
    fields = (b"host: localhost", b"connection: close", b"x-large: " + b"x" * (HEADER_SIZE - 200))
    assert send(process, head(*fields))[9:12] == b"200"


def test_nothing_behind_a_refused_head_is_answered(process: Process) -> None:
    twice = head(b"host: localhost", b"host: localhost")
    found = send(process, twice + head(b"host: localhost"))
    assert (found[9:12], found.count(b"HTTP/1.1")) == (b"400", 1)


def test_a_body_that_does_not_come_ends_its_connection_whatever_the_method(
    process: Process,
) -> None:
    methods = (b"GET", b"HEAD", b"OPTIONS", b"DELETE", b"POST", b"PUT")
    paths = (b"/v1/topics", b"/healthz/live", POST, b"/no-such-path")
    begun = ((b"content-length: 100", b"{"), (b"transfer-encoding: chunked", b"5\r\n{"))
    with contextlib.ExitStack() as stack:
        open_ = {}
        for each in itertools.product(methods, paths, begun):
            method, path, (field, body) = each
            connection = socket.create_connection(("127.0.0.1", process.port), timeout=60)
            open_[each] = stack.enter_context(connection)
            connection.sendall(head(b"host: localhost", JSON, field, path=path, method=method))
            connection.sendall(body)
        for (method, path, _), connection in open_.items():
            found = b"".join(iter(partial(connection.recv, 65536), b""))
            assert found[9:12] == b"408", (method, path, found)


def test_a_trickle_of_a_body_ends_too(process: Process) -> None:
    with socket.create_connection(("127.0.0.1", process.port), timeout=60) as connection:
        connection.sendall(head(b"host: localhost", b"content-length: 60000"))
        connection.settimeout(0.05)
        received = b""
        for _ in range(10_000):
            try:
                connection.sendall(b"x")
                part = connection.recv(65536)
            except TimeoutError:
                continue
            except OSError:
                break
            received += part
            if not part:
                break
        else:
            raise AssertionError("the connection is still open")
    assert received[9:12] == b"408"


def test_a_body_of_a_get_is_read_and_left_out_of_account(process: Process) -> None:
    sent = head(b"host: localhost", b"connection: close", b"content-length: 3") + b"abc"
    assert send(process, sent)[9:12] == b"200"


@pytest.mark.parametrize(
    ("umask", "directories", "files"),
    [(None, {0o700}, {0o600}), ("0027", {0o750}, {0o640}), ("0007", {0o770}, {0o660})],
)
def test_new_files_of_a_store_are_their_owners_unless_a_setting_says_otherwise(
    tmp_path: Path, umask: str | None, directories: set[int], files: set[int]
) -> None:
    settings = {} if umask is None else {"store_umask": umask}
    store = tmp_path / "data" / "store"
    with writer(store, **settings) as process:
        httpx.put(f"{process.url}/v1/topics/t", json={"queues": 2}).raise_for_status()
        body = {"messages": [{"body": "x", "keys": ["k"]}], "durability": "sync"}
        httpx.post(f"{process.url}/v1/topics/t/messages", json=body).raise_for_status()
        httpx.post(f"{process.url}/v1/store:flush").raise_for_status()
    found = [store.parent, *store.parent.rglob("*")]
    assert {each.stat().st_mode & 0o777 for each in found if each.is_dir()} == directories
    assert {each.stat().st_mode & 0o777 for each in found if each.is_file()} == files


def test_what_a_broker_made_keeps_its_permissions(tmp_path: Path) -> None:
    store = tmp_path / "store"
    (store / "config").mkdir(parents=True)
    lock = store / "lock"
    lock.write_bytes(b"lock")
    for path, mode in ((store, 0o755), (store / "config", 0o775), (lock, 0o664)):
        path.chmod(mode)
    with writer(store):
        pass
    modes = [path.stat().st_mode & 0o777 for path in (store, store / "config", lock)]
    assert modes == [0o755, 0o775, 0o664]


_MESSAGES: Final = "topics/{topic}/messages"


@pytest.mark.parametrize(
    ("path", "body", "name"),
    [
        (_MESSAGES, '{"messages":[{"body":"a","body":"b"}]}', "body"),
        (_MESSAGES, '{"messages":[{"body":"a","properties":{"p":"1","p":"2"}}]}', "p"),
        (_MESSAGES, '{"messages":[{"body":"a"}],"messages":[{"body":"b"}]}', "messages"),
        (
            "groups/g:receive",
            '{"topics":{"orders":{}},"max":1,"max":2}',
            "max",
        ),
        ("groups/g:ack", '{"receipts":["a"],"receipts":["b"]}', "receipts"),
        (
            "transactions",
            '{"producerGroup":"g","topic":"a","topic":"b","messages":[{"body":"a"}]}',
            "topic",
        ),
        ("groups/g/offsets:reset", '{"topic":"orders","to":"earliest","to":"latest"}', "to"),
    ],
)
def test_a_member_that_is_there_twice_is_refused_and_named(
    services: Run, topic: str, path: str, body: str, name: str
) -> None:
    url = f"{services.writer_url}/v1/{path.format(topic=topic)}"
    answer = httpx.post(url, content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 400, answer.text
    assert f"member '{name}' is twice" in answer.json()["detail"]
