"""The listener for checks answers what the coordinator signed, and nothing else."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import httpx
import pytest

from mqstore.client import Transaction
from mqstore.client.callbacks import REPLAY_WINDOW_S, SIGNATURE_HEADER, signature
from mqstore.client.check_listener import BODY_MAX, CONNECTIONS_MAX, CheckListener

SECRET = "s" * 32
LATER_S = 60
TRANSACTION = Transaction(
    transaction_id="0-k",
    shard=0,
    state="pending",
    producer_group="g",
    messages=1,
    born_timestamp=0,
    checks_sent=0,
    checks=(),
    decided_at=None,
    why="",
    halves=(),
)
BODY = TRANSACTION.model_dump_json(by_alias=True).encode()


class Answers:
    """Answers each check with "commit", once it may."""

    def __init__(self) -> None:
        self.transactions: list[Transaction] = []
        self.may_answer = threading.Event()
        self.may_answer.set()

    def __call__(self, transaction: Transaction) -> str:
        self.transactions.append(transaction)
        assert self.may_answer.wait(LATER_S)
        return "commit"


@pytest.fixture
def answers() -> Answers:
    return Answers()


@pytest.fixture
def listener(answers: Answers) -> Iterator[CheckListener]:
    with CheckListener("127.0.0.1", 0, SECRET, answers) as found:
        yield found


def post(listener: CheckListener, body: bytes, signed: str | None = None) -> httpx.Response:
    signed = signature(SECRET, body, int(time.time())) if signed is None else signed
    url = f"http://{listener.address}/"
    return httpx.post(url, content=body, headers={SIGNATURE_HEADER: signed}, timeout=LATER_S)


def test_a_signed_check_is_answered(listener: CheckListener, answers: Answers) -> None:
    reply = post(listener, BODY)
    assert (reply.status_code, reply.json()) == (200, {"decision": "commit"})
    assert answers.transactions == [TRANSACTION]


def test_what_is_not_signed_reaches_no_application(
    listener: CheckListener, answers: Answers
) -> None:
    now = int(time.time())
    for signed in (
        "",
        signature("another secret", BODY, now),
        signature(SECRET, b"another body", now),
        signature(SECRET, BODY, now - 2 * REPLAY_WINDOW_S),
    ):
        assert post(listener, BODY, signed).status_code == 403
    assert post(listener, b"{}").status_code == 422
    assert post(listener, b"x" * (BODY_MAX + 1)).status_code == 413
    assert httpx.get(f"http://{listener.address}/", timeout=LATER_S).status_code == 501
    assert answers.transactions == []


def test_the_number_of_connections_is_bounded(listener: CheckListener) -> None:
    host, _, port = listener.address.rpartition(":")
    idle = [socket.create_connection((host, int(port))) for _ in range(CONNECTIONS_MAX + 1)]
    try:
        assert idle[-1].recv(1) == b""  # closed
    finally:
        for each in idle:
            each.close()


def test_an_address_has_its_port_and_ipv6_its_brackets(answers: Answers) -> None:
    with CheckListener("::1", 0, SECRET, answers) as listener:
        assert listener.address.startswith("[::1]:")
        assert post(listener, BODY).status_code == 200
    with pytest.raises(OSError, match="assign"):
        CheckListener("192.0.2.1", 0, SECRET, answers)
