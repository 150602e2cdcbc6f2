"""The lean client frames requests as it must, counts what was exchanged, and reports failures."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.bench import exchanges, lean
from tests.bench.lean import LeanError, Limits

HTTP_REPLY = b"HTTP/1.1 201 Created\r\ncontent-length: 2\r\n\r\n{}"
Answer = Callable[[bytes], bytes]
"""Makes the reply to one request."""


@contextmanager
def server(receive: Callable[[socket.socket], bytes], answer: Answer) -> Iterator[int]:
    """A server of one connection on the loopback; its port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                while request := receive(connection):
                    connection.sendall(answer(request))

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        thread.join(10)


def http_request(connection: socket.socket) -> bytes:
    """One request with its body; empty at the end."""
    data = b""
    while b"\r\n\r\n" not in data:
        more = connection.recv(1 << 16)
        if not more:
            return b""
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    size = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0] or 0)
    while len(body) < size:
        more = connection.recv(1 << 16)
        data, body = data + more, body + more
    return data


def frame(connection: socket.socket) -> bytes:
    """One frame of the remoting protocol; empty at the end."""
    head = connection.recv(4, socket.MSG_WAITALL)
    return head + connection.recv(int.from_bytes(head, "big"), socket.MSG_WAITALL) if head else b""


def command_of(data: bytes) -> tuple[dict[str, object], bytes]:
    """The header and the body of a frame."""
    size = int.from_bytes(data[4:8], "big")
    command: dict[str, object] = json.loads(data[8 : 8 + size])
    return command, data[8 + size :]


def reply_to(request: bytes, *, code: int = 0, body: bytes = b"", **fields: str) -> bytes:
    """A frame as a broker replies."""
    opaque = command_of(request)[0]["opaque"]
    command = {"code": code, "extFields": fields, "flag": 1, "opaque": opaque}
    header = json.dumps(command, separators=(",", ":")).encode()
    size = 4 + len(header) + len(body)
    return size.to_bytes(4, "big") + len(header).to_bytes(4, "big") + header + body


def test_every_connection_sends_its_number_of_requests_with_its_own_keys() -> None:
    requests: list[bytes] = []

    def answer(request: bytes) -> bytes:
        requests.append(request)
        return HTTP_REPLY

    with server(http_request, answer) as port:
        found = lean.run(exchanges.our_send(16), port, 1, Limits(exchanges=5), [os.getpid()])
    messages = [json.loads(each.partition(b"\r\n\r\n")[2])["messages"][0] for each in requests]
    assert (found.exchanges, found.messages) == (5, 5)
    assert found.reply_bytes == 5 * len(HTTP_REPLY)
    assert len({each["uniqKey"] for each in messages}) == 5
    assert [each["keys"] for each in messages] == [[f"order-{n:010}"] for n in range(5)]
    assert {each["body"] for each in messages} == {"x" * 16}


def test_a_message_for_a_broker_is_a_whole_frame() -> None:
    requests: list[bytes] = []

    def answer(request: bytes) -> bytes:
        requests.append(request)
        return reply_to(request)

    with server(frame, answer) as port:
        found = lean.run(exchanges.their_send(16), port, 1, Limits(exchanges=3))
    headers, bodies = zip(*map(command_of, requests), strict=True)
    assert found.messages == 3
    assert set(bodies) == {b"x" * 16}
    assert [each["code"] for each in headers] == [310] * 3
    assert len({each["opaque"] for each in headers}) == 3
    assert headers[0]["extFields"]["i"].endswith("\x02KEYS\x01order-0000000000\x02TAGS\x01paid")


def test_every_message_of_a_batch_is_counted() -> None:
    with server(http_request, lambda _: HTTP_REPLY) as port:
        found = lean.run(exchanges.our_batch(16, 100), port, 1, Limits(exchanges=3))
    assert (found.exchanges, found.messages) == (3, 300)


def test_a_decision_names_the_half_message_of_the_reply() -> None:
    commands: list[dict[str, object]] = []

    def answer(request: bytes) -> bytes:
        commands.append(command_of(request)[0])
        message_id = "7F00000100002A9F00000000000002F0"
        return reply_to(request, msgId=message_id, queueOffset="12")

    with server(frame, answer) as port:
        found = lean.run(exchanges.their_transaction(16), port, 1, Limits(exchanges=2))
    assert found.messages == 2
    assert [each["code"] for each in commands] == [310, 37, 310, 37]
    fields = commands[1]["extFields"]
    assert isinstance(fields, dict)
    assert (fields["commitLogOffset"], fields["tranStateTableOffset"]) == (str(0x2F0), "12")


def test_pulls_continue_at_the_offset_of_the_reply_and_begin_again_at_the_end() -> None:
    offsets: list[int] = []
    record = (8).to_bytes(4, "big") * 2

    def answer(request: bytes) -> bytes:
        fields = command_of(request)[0]["extFields"]
        assert isinstance(fields, dict)
        offsets.append(int(fields["queueOffset"]))
        return reply_to(request, body=record * 32, nextBeginOffset=str(offsets[-1] + 32))

    with server(frame, answer) as port:
        found = lean.run(exchanges.their_pull(32, 64), port, 1, Limits(exchanges=4))
    assert offsets == [0, 32, 0, 32]
    assert found.messages == 4 * 32


def test_a_refused_request_fails_with_the_reply() -> None:
    refusal = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 4\r\n\r\nfull"
    with server(http_request, lambda _: refusal) as port, pytest.raises(LeanError) as error:
        lean.run(exchanges.our_send(16), port, 1, Limits(exchanges=1))
    assert "connection 0: the server refused a request: HTTP/1.1 503" in str(error.value)


def test_a_brokers_error_code_fails_with_the_reply() -> None:
    with (
        server(frame, lambda request: reply_to(request, code=14)) as port,
        pytest.raises(LeanError, match=r'the broker refused a request: .*"code":14'),
    ):
        lean.run(exchanges.their_send(16), port, 1, Limits(exchanges=1))


def test_a_reply_to_another_request_fails() -> None:
    with (
        server(frame, lambda request: reply_to(request.replace(b"10000", b"20000"))) as port,
        pytest.raises(LeanError, match="a reply to another request"),
    ):
        lean.run(exchanges.their_send(16), port, 1, Limits(exchanges=1))


def test_a_closed_connection_fails() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        closing = threading.Thread(target=lambda: listener.accept()[0].close())
        closing.start()
        with pytest.raises(
            LeanError, match=r"connection 0: (the server closed it|Connection reset)"
        ):
            lean.run(exchanges.our_send(16), listener.getsockname()[1], 1, Limits(exchanges=1))
        closing.join()


def test_an_unreachable_server_fails() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(LeanError, match=f"127.0.0.1:{port}: Connection refused"):
        lean.run(exchanges.our_send(16), port, 1, Limits(exchanges=1))


def test_an_ended_server_process_fails() -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        pytest.raises(LeanError, match="processor time of a server"),
    ):
        port = listener.getsockname()[1]
        lean.run(exchanges.our_send(16), port, 1, Limits(exchanges=1), [ended.pid])
