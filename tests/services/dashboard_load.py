"""A release with every state that the dashboard shows, and a load that goes on."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from mqstore.client import Client, NewMessage, ProblemError
from mqstore.wire.backup_reports import BackupResult
from mqstore.wire.examples.reports import BACKUP, EXPIRY
from tests.services.elected_replicas import Replicas, elected
from tests.services.service_processes import Run, running

SETTINGS: Final[dict[str, Any]] = {
    "message_delay_level": "1s 2h",
    "mapped_file_size_commit_log": 8 << 20,
}
TOPIC: Final = "orders"
PAUSE_S: Final = 0.1


@dataclass(frozen=True)
class Release:
    """Shard 0 with all services, and two replicas of shard 1."""

    run: Run
    replicas: Replicas


@contextlib.contextmanager
def loaded_release(root: Path) -> Iterator[Release]:
    """Run the release under load until the end."""
    with (
        running(root / "store", coordinator=True, **SETTINGS) as run,
        elected(root, 2, shard=1, **SETTINGS) as replicas,
        run.client() as client,
        replicas.leader().client() as leader,
    ):
        _make_states(client)
        leader.create_topic(TOPIC, queues=1)
        with _repeated(lambda: _use(client, leader)):
            yield Release(run, replicas)


def _make_states(client: Client) -> None:
    """Messages in each state, and what jobs leave behind."""
    client.create_topic(TOPIC, queues=2)
    client.create_topic("empty")
    client.produce(TOPIC, [NewMessage(body=f"{n}") for n in range(20)], durability="sync")
    client.pull(TOPIC, 0, group="reports")
    received = client.receive("billing", TOPIC, max_messages=6, invisible_s=3600).messages
    client.acknowledge("billing", received[0])
    client.give_back("billing", received[1], delay_level=2)
    client.give_back("billing", received[2], delay_level=-1)
    client.give_back("billing", received[3:5], delay_level=1)
    (retry,) = client.receive("billing", "empty", max_messages=1, wait_s=30).messages
    client.extend("billing", retry, invisible_s=3600)
    client.produce(TOPIC, NewMessage(body="later", delay_level=2))
    client.begin("shop", TOPIC, NewMessage(body="undecided"))
    client.flush()
    client.put_expiry_report(EXPIRY)
    for action in ("create", "verify"):
        client.put_backup_result(BackupResult.model_validate(BACKUP | {"action": action}))
    client.put_archive(0, "file:///archive")
    client.put_pin("backup-1", 0, lease_s=3600)
    rebuild = client.begin_index_rebuild("a-job")
    client.end_index_rebuild(rebuild.id)
    client.run_scrub()


def _use(client: Client, leader: Client) -> None:
    """One round of the load."""
    repeated = NewMessage(body="again", uniq_key="0" * 32)
    client.produce(TOPIC, [NewMessage(body="x" * 500)], durability="sync")
    client.produce(TOPIC, [repeated])
    client.produce(TOPIC, [NewMessage(body="soon", delay_level=1)])
    client.commit_transaction(
        client.begin("shop", TOPIC, NewMessage(body="decided")).transaction_id
    )
    client.pull(TOPIC, 0, group="reports")
    client.join("ordered", "member", TOPIC)
    leader.produce(TOPIC, [NewMessage(body="copied")], durability="replicated")
    with pytest.raises(ProblemError):
        client.produce("unknown", [NewMessage(body="refused")])


@contextlib.contextmanager
def _repeated(work: Callable[[], None]) -> Iterator[None]:
    """Repeat ``work`` in a thread; raises at the end what it raised."""
    ended = threading.Event()
    failures: list[BaseException] = []

    def repeat() -> None:
        try:
            while not ended.wait(PAUSE_S):
                work()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    if failures:
        raise failures[0]
