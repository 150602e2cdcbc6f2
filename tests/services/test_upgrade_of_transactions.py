"""Transactions over an upgrade and a downgrade: the release before, whose coordinator decides, and
this one, whose store-writer does."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from mqstore.client import Client, Target
from tests.services.previous_release import previous
from tests.services.service_processes import Process, query, service, writer
from tests.services.transaction_shard import begin, bodies_of, end

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.xdist_group("previous-release"),  # its first test builds that release
]

ENDS = [pytest.param(signal.SIGTERM, marks=pytest.mark.nightly), signal.SIGKILL]

SOON: dict[str, Any] = {"transaction_time_out": 0, "transaction_check_interval": 1_000}
PATIENCE_S = 60.0


@dataclass
class Pair:
    """A store-writer and a coordinator of one release, with a query service."""

    writer: Process
    query: Process
    coordinator: Process

    def stop(self, number: int = signal.SIGTERM) -> None:
        for process in (self.coordinator, self.query, self.writer):
            process.process.send_signal(number)
            process.process.communicate(timeout=PATIENCE_S)


@contextlib.contextmanager
def old(root: Path, **ports: int) -> Iterator[Pair]:
    store = root / "store"
    with contextlib.ExitStack() as stack:
        writes = stack.enter_context(previous("writer", store, port=ports.get("writer", 0), **SOON))
        reads = stack.enter_context(previous("query", store))
        coordinates = stack.enter_context(
            previous(
                "coordinator",
                store,
                writer_url=writes.url,
                query_url=reads.url,
                leader_lock=root / "lock",
                port=ports.get("coordinator", 0),
                **SOON,
            )
        )
        yield Pair(writes, reads, coordinates)


def new_coordinator(
    root: Path, writer_url: str, *, status: str = "ready"
) -> contextlib.AbstractContextManager[Process]:
    given: dict[str, Any] = {"writer_url": writer_url, "status": status}
    return service(Target.WRITER, ["-m", "mqstore.coordinator"], root / "store", **given)


@contextlib.contextmanager
def new(root: Path) -> Iterator[Pair]:
    store = root / "store"
    with contextlib.ExitStack() as stack:
        writes = stack.enter_context(writer(store, **SOON))
        reads = stack.enter_context(query(store))
        coordinates = stack.enter_context(new_coordinator(root, writes.url))
        yield Pair(writes, reads, coordinates)


def bodies(pair: Pair) -> list[str]:
    """Bodies that a consumer reads."""
    with Client(pair.writer.url, pair.query.url) as client:
        return sorted(bodies_of(client).elements())


def begin_some(pair: Pair) -> dict[str, str]:
    """By name, transactions in each state in which one can outlive a release."""
    with Client(pair.writer.url) as client:
        client.create_topic("orders")
    process = pair.coordinator
    names = ("committed", "rolled back", "to commit", "to roll back", "to check")
    found = {name: begin(process, f"{name} 1", f"{name} 2") for name in names}
    assert end(process, found["committed"], "commit", reason="paid").is_success
    assert end(process, found["rolled back"], "rollback").is_success
    checked = take(process)
    assert set(checked) == {found[name] for name in names[2:]}
    return found


def take(process: Process) -> list[str]:
    """Ids of the transactions whose checks are due, once there is one."""
    wanted = {"producerGroup": "billing", "wait": 30}
    answer = httpx.post(f"{process.url}/v1/checks", json=wanted, timeout=60)
    return [each["transactionId"] for each in answer.json()["transactions"]]


def decide_all(pair: Pair, begun: dict[str, str]) -> None:
    """Decide what another release began: each comes out as it should, once."""
    process = pair.coordinator
    listed = httpx.get(f"{process.url}/v1/transactions", timeout=60).json()["transactions"]
    waiting = [begun[name] for name in ("to commit", "to roll back", "to check")]
    assert [each["transactionId"] for each in listed] == waiting
    assert [each["checksSent"] >= 1 for each in listed] == [True] * 3
    assert end(process, begun["committed"], "commit").json()["state"] == "committed"
    assert end(process, begun["committed"], "rollback").status_code == 409
    assert end(process, begun["rolled back"], "rollback").json()["state"] == "rolled-back"
    assert end(process, begun["to commit"], "commit").json()["state"] == "committed"
    assert end(process, begun["to roll back"], "rollback").json()["state"] == "rolled-back"
    while begun["to check"] not in take(process):
        assert process.process.poll() is None
    assert end(process, begun["to check"], "commit").json()["state"] == "committed"
    wanted = [f"{name} {n}" for name in ("committed", "to check", "to commit") for n in (1, 2)]
    assert bodies(pair) == wanted
    assert not httpx.get(f"{process.url}/v1/transactions", timeout=60).json()["transactions"]


@pytest.mark.parametrize("how", ENDS)
def test_transactions_of_the_release_before_are_decided(tmp_path: Path, how: int) -> None:
    with old(tmp_path) as before:
        begun = begin_some(before)
        before.stop(how)
    with new(tmp_path) as after:
        decide_all(after, begun)
        after.stop()
    with new(tmp_path) as again:
        assert end(again.coordinator, begun["to check"], "commit").is_success
        assert len(bodies(again)) == 6


@pytest.mark.parametrize("how", ENDS)
def test_after_a_downgrade_the_release_before_decides(tmp_path: Path, how: int) -> None:
    with new(tmp_path) as after:
        begun = begin_some(after)
        after.stop(how)
    with old(tmp_path) as before:
        decide_all(before, begun)


@pytest.mark.nightly
def test_an_old_coordinator_beside_a_new_writer_answers_503_and_loses_nothing(
    tmp_path: Path,
) -> None:
    with old(tmp_path) as before:
        begun = begin_some(before)
        port = before.writer.port
        before.writer.process.terminate()
        before.writer.process.communicate(timeout=PATIENCE_S)
        with (
            writer(tmp_path / "store", port=port, **SOON) as upgraded,
            new_coordinator(tmp_path, upgraded.url) as coordinator,
        ):
            refused = end(before.coordinator, begun["to commit"], "commit")
            assert refused.status_code == 503
            spec = {"producerGroup": "billing", "topic": "orders", "messages": [{"body": "x"}]}
            url = f"{before.coordinator.url}/v1/transactions"
            assert httpx.post(url, json=spec, timeout=60).status_code == 503
            decide_all(Pair(upgraded, before.query, coordinator), begun)


@pytest.mark.nightly
def test_a_new_coordinator_beside_an_old_writer_answers_503_until_that_is_upgraded(
    tmp_path: Path,
) -> None:
    with old(tmp_path) as before:
        begun = begin_some(before)
        port = before.writer.port
        with new_coordinator(tmp_path, before.writer.url, status="not-ready") as coordinator:
            for _ in range(2):
                refused = end(coordinator, begun["to commit"], "commit")
                assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
                assert "earlier release" in refused.json()["detail"]
            assert httpx.get(f"{coordinator.url}/healthz/ready", timeout=60).status_code == 503
            before.stop()
            with (
                writer(tmp_path / "store", port=port, **SOON) as upgraded,
                query(tmp_path / "store") as reads,
            ):
                decide_all(Pair(upgraded, reads, coordinator), begun)
