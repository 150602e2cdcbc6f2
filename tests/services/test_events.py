"""Events are sent as they come, in order, and a client that was cut off goes on where it was."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from mqstore.client import Client, NewMessage
from tests.forked_processes import run_mqstore
from tests.services.service_processes import Process, Run, writer

ReceivedEvent = tuple[str, str, dict[str, Any]]
"""Id, kind, data."""


def _parsed(lines: Iterator[str]) -> Iterator[ReceivedEvent]:
    fields: dict[str, str] = {}
    for line in lines:
        if line:
            name, _, value = line.partition(": ")
            fields[name] = value
        else:
            if "id" in fields:
                yield fields["id"], fields["event"], json.loads(fields["data"])
            fields = {}


def _recent_events(url: str, last_id: str | None = None) -> list[ReceivedEvent]:
    """The events up to now."""
    headers = {} if last_id is None else {"last-event-id": last_id}
    answer = httpx.get(f"{url}/v1/events?seconds=0", headers=headers)
    assert answer.headers["content-type"].startswith("text/event-stream")
    return list(_parsed(iter(answer.text.split("\n"))))


def test_client_that_was_cut_off_goes_on_behind_its_last_event(
    services: Run, client: Client, topic: str
) -> None:
    before = _recent_events(services.writer_url)
    assert before[-1][2] | {"atMs": 0} == {
        "kind": "topic",
        "atMs": 0,
        "topic": topic,
        "isDeleted": False,
    }
    client.create_topic(topic + "-2")
    (event,) = _recent_events(services.writer_url, before[-1][0])
    assert event[2]["topic"] == topic + "-2"
    assert _recent_events(services.writer_url, event[0]) == []


def test_client_of_an_earlier_process_receives_a_gap(
    services: Run, client: Client, topic: str
) -> None:
    events = _recent_events(services.writer_url, "0badf00d-3")
    assert events[0][1] == "gap"
    assert events[1:] == _recent_events(services.writer_url)


def test_event_comes_while_it_is_waited_for(services: Run, client: Client, topic: str) -> None:
    last = _recent_events(services.writer_url)[-1][0]
    headers = {"last-event-id": last}
    url = f"{services.writer_url}/v1/events"
    with httpx.stream("GET", url, headers=headers, timeout=30) as stream:
        lines = stream.iter_lines()
        assert next(lines).startswith("retry")
        client.create_topic(topic + "-3")
        assert next(_parsed(lines))[2]["topic"] == topic + "-3"


def _await(process: Process, kind: str) -> dict[str, Any]:
    with httpx.stream("GET", f"{process.url}/v1/events", timeout=30) as stream:
        for _, found, data in _parsed(stream.iter_lines()):
            if found == kind:
                return data
    raise AssertionError(f"no event {kind}")


def test_opening_and_pause_are_events_and_the_end_of_the_service_ends_the_stream(
    tmp_path: Path,
) -> None:
    with writer(tmp_path / "store") as process, Client(process.url, process.url) as client:
        client.create_topic("t")
        client.produce("t", [NewMessage(body="x")])
        process.kill()
    with writer(tmp_path / "store") as process, Client(process.url, process.url) as client:
        assert _await(process, "opened")["maxOffset"] > 0
        operations = client.operations().operations
        assert ("opening", 100) in [(each.name, each.percent) for each in operations]
        client.put_writes(paused=True, reason="moving")
        assert _await(process, "writes")["reason"] == "moving"
        with httpx.stream("GET", f"{process.url}/v1/events", timeout=30) as stream:
            lines = stream.iter_lines()
            assert next(lines)
            process.process.terminate()
            for _ in lines:
                pass
        assert process.ended()[0] == 0


def _command(*arguments: str) -> list[str]:
    return [sys.executable, "-c", "from mqstore.cli.main import app; app()", "events", *arguments]


def test_command_prints_recent_events_and_what_came_behind_an_event(
    services: Run, client: Client, topic: str
) -> None:
    printed = run_mqstore("events", "-o", "json", "--writer-url", services.writer_url)
    assert (printed.returncode, printed.stderr) == (0, "")
    last = json.loads(printed.stdout.splitlines()[-1])
    assert (last["kind"], last["topic"]) == ("topic", topic)
    client.create_topic(topic + "-5")
    new = ("--writer-url", services.writer_url, "--after", last["id"])
    (line,) = run_mqstore("events", *new, "-o", "json").stdout.splitlines()
    assert json.loads(line)["topic"] == topic + "-5"
    assert "topic " in run_mqstore("events", *new, "-o", "table").stdout


@pytest.mark.slow
def test_command_follows_over_a_restart_until_it_is_interrupted(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with writer(root) as process, Client(process.url, process.url) as client:
        command = _command("--writer-url", process.url, "--follow", "-o", "json")
        following = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert following.stdout is not None
        lines = (json.loads(line) for line in following.stdout)
        assert next(each for each in lines if each["kind"] == "opened")["maxOffset"] == 0
        client.put_writes(paused=True, reason="of two\u2028lines")
        found = next(each for each in lines if each["kind"] == "writes")
        assert found["reason"] == "of two\u2028lines"
        process.process.terminate()
        assert process.ended()[0] == 0
    with writer(root, port=process.port, status="not-ready"), following:
        assert next(lines)["kind"] == "gap"
        assert next(each for each in lines if each["kind"] == "opened")["maxOffset"] == 0
        following.send_signal(signal.SIGINT)
        assert following.wait(timeout=30) == 0


def test_command_that_finds_no_service_says_so() -> None:
    gone = run_mqstore("events", "--writer-url", "http://127.0.0.1:9")
    assert (gone.returncode, gone.stdout) == (3, "")
    assert "http://127.0.0.1:9 does not answer" in gone.stderr
