"""A message's way through the store over the network, and as the command line prints it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from mqstore.client import Client, NewMessage
from mqstore.storage.admin.group_offsets import Commit
from mqstore.storage.codec import properties
from mqstore.storage.codec.record import Message
from mqstore.storage.message_store import MessageStore
from mqstore.wire.examples import traces as examples
from tests.forked_processes import run_mqstore
from tests.services.service_processes import Process, Run, query
from tests.unit.storage.puts import put_message
from tests.unit.storage.stores import open_store

KEY = "U1"
RETRY = "%RETRY%g"


def _put(store: MessageStore, topic: str, **more: str) -> str:
    raw = {"UNIQ_KEY": KEY, "KEYS": "order-1", **more}
    encoded = properties.encode(raw, trailing_separator=False)
    message = Message(topic, 0, b"x", encoded, store.host, store.host, 1)
    return put_message(store, message).offset_message_id


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Process, str]]:
    """g sent one message back, and is past it; the id of the first copy."""
    root = tmp_path_factory.mktemp("traced")
    with open_store(root) as store:
        store.create_topic("T", queues=1)
        first = _put(store, "T")
        store.offsets.commit("g", [Commit("T", 0, 1)])
        _put(store, RETRY, RETRY_TOPIC="T")
    with query(root) as found:
        yield found, first


def _shape(found: Any) -> Any:
    """The names of fields, all the way down."""
    if isinstance(found, dict):
        return {name: _shape(value) for name, value in found.items()}
    return [_shape(each) for each in found[:1]] if isinstance(found, list) else None


def test_trace_is_the_same_by_id_by_unique_key_and_by_key(traced: tuple[Process, str]) -> None:
    process, first = traced
    with Client(process.url, process.url) as client:
        by_id = client.trace(first)
        by_unique_key = client.trace(KEY, topic="T")
        (by_key,) = client.traces("T", "order-1").traces
    assert by_id.trace == by_unique_key.trace == by_key
    message, retry = by_key.copies
    assert (message.kind, retry.kind, retry.group) == ("message", "retry", "g")
    assert [(each.group, each.consumed) for each in message.groups] == [("g", True)]
    assert (message.in_queue, message.segment) == (True, "0" * 20)
    assert (by_id.offsets.writer, by_id.offsets.source) == ("down", "file")


def test_documented_examples_have_the_fields_of_answers(traced: tuple[Process, str]) -> None:
    process, first = traced
    one = httpx.get(f"{process.url}/v1/messages/{first}/trace").json()
    many = httpx.get(f"{process.url}/v1/topics/T/traces?key=order-1").json()
    assert (_shape(one), _shape(many)) == (_shape(examples.TRACE), _shape(examples.TRACES))


def test_delayed_message_waits_and_then_is_delivered(client: Client, topic: str) -> None:
    (placed,) = client.produce(topic, [NewMessage(delay_level=18, uniq_key="late")]).messages
    (copy,) = client.trace(placed.offset_msg_id).trace.copies
    assert (copy.kind, copy.state, copy.topic) == ("delayed", "waiting", "SCHEDULE_TOPIC_XXXX")
    assert copy.due_at == copy.store_timestamp + 2 * 3_600_000
    client.produce(topic, [NewMessage(delay_level=1, uniq_key="soon")])
    while not client.pull(topic, 0, wait_s=5).messages:
        pass
    delayed, message = client.trace("soon", topic=topic).trace.copies
    assert (delayed.state, message.kind, message.state) == ("delivered", "message", "stored")


@pytest.mark.parametrize(
    ("path", "status", "problem"),
    [
        ("/v1/messages/nothing/trace", 400, "bad-message-id"),
        ("/v1/messages/nothing/trace?topic=", 404, "message-unknown"),
        ("/v1/messages/nothing/trace?topic=T", 404, "message-unknown"),
        ("/v1/messages/" + "0" * 32 + "/trace", 404, "message-unknown"),
        ("/v1/messages/nothing/trace?key=x", 400, "bad-parameter"),
        ("/v1/topics/never/traces?key=x", 404, "topic-unknown"),
        ("/v1/topics/T/traces", 400, "bad-parameter"),
        ("/v1/topics/T/traces?key=", 400, "bad-parameter"),
        ("/v1/topics/T/traces?key=x&limit=65", 400, "bad-parameter"),
        ("/v1/topics/T/traces?key=x&cursor=x", 400, "bad-cursor"),
    ],
)
def test_what_makes_no_sense_is_refused(
    traced: tuple[Process, str], path: str, status: int, problem: str
) -> None:
    answer = httpx.get(traced[0].url + path)
    found = (answer.status_code, answer.json()["type"].rpartition(":")[2])
    assert found == (status, problem), answer.text


def test_command_line_prints_traces(traced: tuple[Process, str]) -> None:
    process, first = traced
    printed = run_mqstore("message", "trace", first, "-o", "json", "--query-url", process.url)
    assert (printed.returncode, len(json.loads(printed.stdout)["copies"])) == (0, 2), printed.stderr
    table = run_mqstore(
        "message", "trace", KEY, "--topic", "T", "--query-url", process.url, "-o", "table"
    )
    assert (table.returncode, table.stderr) == (0, "")
    assert "g is past it, at 1" in table.stdout
    assert f"{RETRY}/0 #0" in table.stdout


def test_command_line_prints_lag(traced: tuple[Process, str]) -> None:
    process, _ = traced
    printed = run_mqstore("group", "lag", "-o", "json", "--query-url", process.url)
    assert json.loads(printed.stdout)["groups"][0]["group"] == "g"
    for arguments in ((), ("g",)):
        table = run_mqstore("lag", *arguments, "--query-url", process.url, "-o", "table")
        assert (table.returncode, table.stderr) == (0, "")
        assert "store-writer (down) did not reply" in table.stdout
        assert "T " in table.stdout


def test_command_line_ends_with_the_code_of_what_went_wrong(
    traced: tuple[Process, str], services: Run, topic: str, tmp_path: Path
) -> None:
    process, _ = traced
    refused = run_mqstore("lag", "unknown", "--query-url", process.url)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "unknown" in refused.stderr
    none = run_mqstore("message", "trace", "k", "--topic", topic, "--query-url", services.query_url)
    assert none.returncode == 1
    gone = run_mqstore("lag", "--query-url", "http://127.0.0.1:9")
    assert gone.returncode == 3
    assert "does not answer" in gone.stderr
