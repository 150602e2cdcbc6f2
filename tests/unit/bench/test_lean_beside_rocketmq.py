"""The lean client sends the same as RocketMQ's client, and RocketMQ reads it back."""

from __future__ import annotations

import hashlib
import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.bench import exchanges, lean, rocketmq
from tests.bench.lean import Exchange, LeanError, Limits
from tests.bench.rocketmq import Peer, PeerError
from tests.bench.workload import QUEUES, TOPIC
from tests.compat.referee import Line, Referee
from tests.services.service_processes import running

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.referee,
    pytest.mark.skipif(rocketmq.missing() is not None, reason=str(rocketmq.missing())),
]
SIZE = 64
SEGMENT = 64 << 20
FEW = Limits(exchanges=3)
CONNECTIONS = 2
BODY = hashlib.sha256(exchanges.body_of(SIZE)).hexdigest()


@pytest.fixture(scope="module")
def peer() -> Iterator[Peer]:
    found = Peer()
    yield found
    found.close()


@pytest.fixture(scope="module")
def referee() -> Iterator[Referee]:
    found = Referee(rocketmq.VERSION)
    yield found
    found.close()


def messages(referee: Referee, store: Path) -> list[Line]:
    """The messages of the topic, decoded by RocketMQ."""
    lines = referee.dump(store, {"mappedFileSizeCommitLog": SEGMENT}, queries=False)
    assert not [line for line in lines if line["t"] == "bad"]
    return [line for line in lines if line["t"] == "msg" and line["topic"] == TOPIC]


def expected(count: int) -> set[str]:
    return {f"order-{number:010}" for number in range(count)}


def test_a_broker_stores_what_the_client_sends(
    peer: Peer, referee: Referee, tmp_path: Path
) -> None:
    with peer.broker(tmp_path, "ASYNC_FLUSH", segment=SEGMENT) as (port, _):
        for exchange in (exchanges.their_send(SIZE), exchanges.their_batch(SIZE, 5)):
            lean.run(exchange, port, CONNECTIONS, FEW)
        lean.run(exchanges.their_transaction(SIZE), port, CONNECTIONS, FEW)
        pulled = lean.run(exchanges.their_pull(32, 1), port, 1, FEW)
    found = messages(referee, tmp_path)
    assert len(found) == 6 + 30 + 6
    assert_sent(found)
    assert pulled.messages == 3 * sum(line["q"] == 0 for line in found)


def test_store_writer_stores_what_the_client_sends(referee: Referee, tmp_path: Path) -> None:
    store = tmp_path / "store"
    with running(store, mapped_file_size_commit_log=SEGMENT) as run, run.client() as client:
        client.create_topic(TOPIC, queues=QUEUES)
        port = urlsplit(run.writer_url).port or 0
        for exchange in (exchanges.our_send(SIZE), exchanges.our_batch(SIZE, 5)):
            lean.run(exchange, port, CONNECTIONS, FEW)
        lean.run(exchanges.our_transaction(SIZE), port, CONNECTIONS, FEW)
        query_port = urlsplit(run.query_url).port or 0
        pulled = lean.run(exchanges.our_pull(32, 1), query_port, 1, FEW)
        run.stop()
    found = messages(referee, store)
    assert len(found) == 6 + 30 + 6
    assert_sent(found)
    assert pulled.messages == 3 * sum(line["q"] == 0 for line in found)


def assert_sent(found: list[Line]) -> None:
    """Every message is one of the client's, with a unique key of its own."""
    singles, batched, transactions = found[:6], found[6:36], found[36:]
    assert {line["bodySha256"] for line in found} == {BODY}
    assert {line["tags"] for line in found} == {"paid"}
    assert all(line["crcOk"] for line in found)
    assert len({line["uniqKey"] for line in found}) == len(found)
    for part in (singles, batched, transactions):
        assert {line["keys"] for line in part} == expected(len(part))
    assert {line["q"] for line in singles} == {line["q"] for line in batched} == {0, 1}
    assert {line["props"].get("PGROUP") for line in transactions} == {exchanges.GROUP}


@pytest.mark.parametrize("batch", [1, 5])
def test_a_frame_is_that_of_rocketmqs_client(batch: int, peer: Peer) -> None:
    theirs = frame_of(lambda port: send_by_rocketmqs_client(peer, port, batch))
    exchange = exchanges.their_batch(SIZE, batch) if batch > 1 else exchanges.their_send(SIZE)
    ours = frame_of(lambda port: send_by_lean_client(exchange, port))
    their_fields, our_fields = theirs.pop("extFields"), ours.pop("extFields")
    assert (list(ours), list(our_fields)) == (list(theirs), list(their_fields))
    # peer/Sends.java gives the client a batch in one Message; a MessageBatch is sent as code 320.
    assert ours["code"] == (exchanges.SEND_BATCH_MESSAGE if batch > 1 else theirs["code"])
    differing = {"opaque", "code"}
    assert without(ours, differing) == without(theirs, differing)
    differing = {"g", "i"}  # the time of birth, and properties that hold keys
    assert without(our_fields, differing) == without(their_fields, differing)
    assert names_of(our_fields["i"]) == names_of(their_fields["i"])


def frame_of(send: Callable[[int], None]) -> dict[str, Any]:
    """The header of the first frame that a client sends; its connection is then closed."""
    headers: list[dict[str, Any]] = []

    def receive() -> None:
        connection, _ = listener.accept()
        with connection:
            size = int.from_bytes(connection.recv(4, socket.MSG_WAITALL), "big")
            data = connection.recv(size, socket.MSG_WAITALL)
            length = int.from_bytes(data[:4], "big")  # its first byte, 0, says JSON
            headers.append(json.loads(data[4 : 4 + length]))

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=receive)
        thread.start()
        send(listener.getsockname()[1])
        thread.join()
    return headers[0]


def send_by_rocketmqs_client(peer: Peer, port: int, batch: int) -> None:
    with pytest.raises(PeerError):
        peer.request("send", port=port, connections=1, sends=1, batch=batch, body=SIZE)


def send_by_lean_client(exchange: Exchange, port: int) -> None:
    with pytest.raises(LeanError):
        lean.run(exchange, port, 1, FEW)


def without(fields: dict[str, Any], names: set[str]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name not in names}


def names_of(properties: str) -> list[str]:
    """The names of encoded properties."""
    return [each.partition("\x01")[0] for each in properties.split("\x02")]
