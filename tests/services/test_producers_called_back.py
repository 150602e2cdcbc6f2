"""Producers that are called back: a real coordinator, real producers, one of them down."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from mqstore.client.callbacks import SIGNATURE_HEADER, check_signature
from tests.services.service_processes import Process
from tests.services.transaction_shard import Shard, begin, end, shard_at

pytestmark = pytest.mark.slow

SECRET = "s" * 32


@pytest.fixture(scope="module")
def shard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shard]:
    with shard_at(tmp_path_factory.mktemp("shard"), transaction_check_interval=1_000) as found:
        yield found


class Server(ThreadingHTTPServer):
    """Takes as many connections at a time as a test makes; one too many is retried after a second,
    and the check that it belongs to after the interval of checks."""

    request_queue_size = 128


class Billing:
    """A producer with a memory of what it decided."""

    def __init__(self) -> None:
        self.decisions: dict[str, str] = {}
        self.checked: list[str] = []
        self.called = threading.Semaphore(0)
        billing = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                signed = self.headers[SIGNATURE_HEADER]
                at_s = int(signed.partition(",")[0].removeprefix("t="))
                check_signature(SECRET, body, signed, at_s)
                key = json.loads(body)["transactionId"]
                billing.checked.append(key)
                answer = {"decision": billing.decisions.get(key, "unknown"), "reason": "the books"}
                encoded = json.dumps(answer).encode()
                self.send_response(200)
                self.send_header("content-length", str(len(encoded)))
                self.end_headers()
                self.wfile.write(encoded)
                billing.called.release()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = Server(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))

    @contextlib.contextmanager
    def running(self) -> Iterator[Billing]:
        self.thread.start()
        try:
            yield self
        finally:
            self.server.shutdown()
            self.thread.join()
            self.server.server_close()


def allowing(*ports: int) -> dict[str, Any]:
    return {
        "callback_hosts": "127.0.0.0/8",
        "callback_http": "true",
        "callback_ports": ",".join(map(str, ports)),
    }


def register(process: Process, name: str, port: int, host: str = "127.0.0.1") -> httpx.Response:
    body = {"url": f"http://{host}:{port}/checks", "secret": SECRET}
    return httpx.put(f"{process.url}/v1/producers/billing/{name}", json=body, timeout=60)


def snapshot(process: Process, transaction: str) -> dict[str, Any]:
    url = f"{process.url}/v1/transactions/{transaction}"
    found: dict[str, Any] = httpx.get(url, timeout=60).json()
    return found


def test_a_producer_that_is_down_is_passed_over_and_the_answer_counts(
    shard: Shard, tmp_path: Path
) -> None:
    billing, down = Billing(), Billing()
    down.server.server_close()
    settings = allowing(billing.port, down.port)
    with billing.running(), shard.coordinator(**settings) as process:
        assert register(process, "a-down", down.port).status_code == 200
        kept, dropped = begin(process, "kept"), begin(process, "dropped")
        billing.decisions = {kept: "commit", dropped: "rollback"}
        assert register(process, "b-up", billing.port).json()["address"] == "127.0.0.1"
        while (found := snapshot(process, kept))["state"] == "pending":
            assert process.process.poll() is None
        assert (found["state"], found["why"], found["checksSent"]) == ("committed", "the books", 1)
        assert [(each["by"], each["answer"]) for each in found["checks"]] == [("b-up", "commit")]
        while snapshot(process, dropped)["state"] != "rolled-back":
            assert process.process.poll() is None
        shown = httpx.get(f"{process.url}/v1/producers", timeout=60).json()["producers"]
        states = {each["name"]: (each["failures"] > 0, each["detail"]) for each in shown}
        assert states["b-up"] == (False, None)
        assert states["a-down"][0]
        assert SECRET not in json.dumps(shown)
    assert shard.bodies().count("kept") == 1
    assert "dropped" not in shard.bodies()


def test_one_that_does_not_know_is_checked_again_and_what_was_not_sent_is_not_counted(
    shard: Shard,
) -> None:
    billing = Billing()
    with billing.running(), shard.coordinator(**allowing(1, billing.port)) as process:
        register(process, "down", 1)
        transaction = begin(process, "later")
        url = f"{process.url}/v1/producers"
        while not httpx.get(url, timeout=60).json()["producers"][0]["failures"]:
            assert process.process.poll() is None
        assert snapshot(process, transaction)["checksSent"] == 0
        register(process, "up", billing.port)
        assert billing.called.acquire(timeout=60)
        assert billing.called.acquire(timeout=60)
        assert snapshot(process, transaction)["checksSent"] >= 1
        assert set(billing.checked) == {transaction}
        gone = [httpx.delete(f"{url}/billing/up", timeout=60).status_code for _ in range(2)]
        assert gone == [204, 404]
        assert end(process, transaction, "commit").status_code == 200


def test_what_the_operator_did_not_allow_is_refused(shard: Shard) -> None:
    with shard.coordinator(**allowing(80)) as process:
        assert register(process, "one", 80).status_code == 200
        for host, port in (("127.0.0.1", 81), ("localhost", 80), ("169.254.169.254", 80)):
            refused = register(process, "one", port, host)
            assert refused.status_code == 403
            assert refused.json()["type"].endswith(":callback-refused")


def test_a_producer_that_registered_at_one_coordinator_is_called_by_another_one(
    shard: Shard,
) -> None:
    billing = Billing()
    settings = allowing(billing.port)
    with billing.running(), shard.coordinator(**settings) as two:
        with shard.coordinator(**settings) as one:
            assert register(one, "b", billing.port).status_code == 200
            one.kill()
        transaction = begin(two, "called by another")
        billing.decisions = {transaction: "commit"}
        while snapshot(two, transaction)["state"] == "pending":
            assert two.process.poll() is None
        shown = httpx.get(f"{two.url}/v1/producers", timeout=60).json()["producers"]
        assert "b" in [each["name"] for each in shown]
    assert shard.bodies().count("called by another") == 1


def test_two_coordinators_call_a_producer_once_for_a_check(tmp_path: Path) -> None:
    """No second check comes within the check interval, which is a minute here."""
    billing = Billing()
    settings = allowing(billing.port)
    with (
        billing.running(),
        shard_at(tmp_path) as shard,
        shard.coordinator(**settings) as one,
        shard.coordinator(**settings) as two,
    ):
        transactions = [begin(one, f"once {number}") for number in range(20)]
        billing.decisions = dict.fromkeys(transactions, "rollback")
        assert register(two, "c", billing.port).status_code == 200
        for each in transactions:
            while (found := snapshot(two, each))["state"] == "pending":
                assert one.process.poll() is None
            assert found["checksSent"] == 1
        assert sorted(billing.checked) == sorted(transactions)
