"""Every command of README.md and docs/start.md does what it says; only addresses and paths change.

Those for Kubernetes are run by tests/e2e.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mqstore.client import Client, NewMessage
from tests.services.service_processes import REPOSITORY, Run, running, writer

README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
START = (REPOSITORY / "docs" / "start.md").read_text(encoding="utf-8")


def _blocks(page: str) -> list[list[str]]:
    """Return the commands of each block, without comments."""
    return [
        [re.sub(r"\s+# .*", "", line) for line in block.replace("\\\n", " ").splitlines()]
        for block in re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
    ]


MQSTORE = str(Path(sys.executable).with_name("mqstore"))
TWO_COMMANDS, PRODUCE_AND_FIND, BROKERS_STORE, _ON_KUBERNETES = _blocks(README)
_RUN, START_PRODUCE, RECEIVE, READ, TRANSACTION, START_BROKERS_STORE = _blocks(START)


def _run(command: str, **variables: str) -> str:
    done = subprocess.run(
        ["bash", "-ec", command],
        cwd=REPOSITORY,
        env=os.environ | {"MQSTORE_OUTPUT": "json"} | variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_two_commands_are_targets_of_make() -> None:
    assert TWO_COMMANDS == ["make run", "make test"]
    targets = re.findall(r"^([a-z0-9-]+):", (REPOSITORY / "Makefile").read_text(), re.MULTILINE)
    for name in re.findall(r"`make ([a-z0-9-]+)`", README):
        assert name in targets


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl: the README's own commands")
def test_what_is_produced_is_found_by_its_key(services: Run) -> None:
    topic, produced, found, traced, lag = _replies(PRODUCE_AND_FIND, services)
    assert [each["kind"] for each in traced["copies"]] == ["message"]
    assert lag["next"] is None
    assert topic["queues"] == 4
    assert len(produced["messages"]) == 1
    newest = found["messages"][0]
    assert newest["body"] == "two teapots"
    assert newest["uniqKey"] == produced["messages"][0]["uniqKey"]
    assert found["complete"]


def _replies(commands: list[str], services: Run) -> list[Any]:
    """Run each command against the services; its output is JSON."""
    replies = []
    for command in commands:
        for port, url in (("8081", services.writer_url), ("8082", services.query_url)):
            command = command.replace(f"localhost:{port}", url)
        command = command.replace(".venv/bin/mqstore", MQSTORE)
        output = _run(command, MQSTORE_QUERY_URL=services.query_url)
        replies.append(json.loads(output) if output else None)
    return replies


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl: the page's own commands")
def test_a_message_is_received_by_a_group(services: Run) -> None:
    *_, found = _replies(START_PRODUCE, services)
    (received,) = _replies(RECEIVE, services)
    assert found["messages"][0]["uniqKey"] in [each["uniqKey"] for each in received["messages"]]
    assert all(each["receipt"] for each in received["messages"])


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl: the page's own commands")
@pytest.mark.slow
def test_a_queue_is_read_and_its_position_saved(services: Run) -> None:
    _replies(START_PRODUCE, services)
    stored, pulled, _, lag = _replies(READ, services)
    assert stored["messages"][0]["queueId"] == 0
    assert "a kettle" in [each["body"] for each in pulled["messages"]]
    (topic,) = lag["topics"]
    (queue,) = [each for each in topic["queues"] if each["queueId"] == 0]
    assert queue["lag"] == pulled["next"] - 1


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl: the page's own commands")
@pytest.mark.xdist_group("coordinator")
def test_a_transaction_is_begun_and_committed(with_coordinator: Run) -> None:
    run = with_coordinator
    script = "\n".join(TRANSACTION).replace("localhost:8083", run.coordinator_url)
    with run.client() as client:
        client.create_topic("orders", queues=4)
    committed, snapshot = (
        _run(script.replace("curl ", "curl -sS ")).replace("}{", "}\n{").split("\n")
    )
    assert json.loads(committed)["state"] == json.loads(snapshot)["state"] == "committed"
    (half,) = json.loads(snapshot)["halves"]
    with run.client() as client:
        (found,) = client.messages_by_key("orders", half["uniqKey"]).messages
        assert found.body == "paid"
    assert f"{run.coordinator_url}/docs" in run.banner


def test_api_pages_are_where_it_says(services: Run) -> None:
    for port in re.findall(r"http://localhost:(\d+)/docs", README):
        assert port in ("8081", "8082", "8083")
    assert f"{services.writer_url}/docs" in services.banner
    assert f"{services.query_url}/docs" in services.banner


@pytest.mark.slow
def test_a_copy_of_a_store_is_dumped_and_served(tmp_path: Path) -> None:
    store, copy = tmp_path / "broker", tmp_path / "copy"
    with writer(store) as process, Client(process.url) as client:
        client.create_topic("t", queues=1)
        client.produce("t", [NewMessage(body="from the broker")])
        process.process.terminate()
        process.ended()
    make_copy, dump, serve = BROKERS_STORE
    assert BROKERS_STORE == START_BROKERS_STORE
    _run(make_copy.replace("/path/to/broker/store", str(store)).replace("/path/to/copy", str(copy)))
    lines = _run(dump.replace(".venv/bin/mqstore", MQSTORE).replace("/path/to/copy", str(copy)))
    assert [json.loads(line)["t"] for line in lines.splitlines()[:2]] == ["recovered", "msg"]
    assert serve == "make run STORE=/path/to/copy"
    with running(copy, under_make=True) as run, run.client() as client:
        assert [each.body for each in client.pull("t", 0).messages] == ["from the broker"]


def test_pages_that_it_names_are_there() -> None:
    for path in re.findall(r"\]\(([^)#:]+)\)", README):
        assert (REPOSITORY / path).exists(), path
