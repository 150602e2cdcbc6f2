"""Real writers over a store whose lock file is deleted, and over a copy of a store."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

from mqstore.client import Client, NewMessage
from mqstore.jobs.errors import NoStore
from mqstore.jobs.log import at_path
from mqstore.storage.errors import StoreLocked
from tests import forked_processes
from tests.services.service_processes import environment, writer
from tests.store_copies import copy_store
from tests.unit.storage.stores import open_store


def refused(module: str, store: Path) -> str:
    """Output of a service that exits at once."""
    given = environment(store=store, writer_port=0, query_port=0)
    ended = forked_processes.start(module, environment=given)
    _, errors = ended.communicate(60)
    assert ended.returncode == 2, errors
    return errors


def stored(root: Path) -> list[bytes | None]:
    """Bodies of queue 0, by an opening of this process."""
    with open_store(root) as store:
        return [each.body for each in store.lookups.records("t", 0, 0, count=9).records]


def test_a_writer_whose_lock_file_was_deleted_lets_no_second_one_in_and_ends(
    tmp_path: Path,
) -> None:
    store, message = tmp_path / "store", tmp_path / "message"
    with writer(store, termination_message_path=message) as first, Client(first.url) as client:
        client.create_topic("t", queues=1)
        client.produce("t", [NewMessage(body="one")], durability="sync")
        status = Path(f"/proc/{first.process.pid}/status")
        first.process.send_signal(signal.SIGSTOP)
        while not re.search(r"^State:\s+T", status.read_text(), re.MULTILINE):
            assert first.process.poll() is None
        (store / "lock").unlink()
        with pytest.raises(StoreLocked, match=r"mqstore/lock"):
            open_store(store)
        first.process.send_signal(signal.SIGCONT)
        code, _ = first.ended()
    assert code == 1
    assert f"{store / 'lock'} was deleted or replaced" in message.read_text()
    assert stored(store) == [b"one"]


def test_no_service_and_no_job_opens_a_copy_whose_log_is_the_originals(tmp_path: Path) -> None:
    store, copy, log = tmp_path / "store", tmp_path / "copy", tmp_path / "disk2" / "log"
    with writer(store, store_path_commit_log=log) as original, Client(original.url) as client:
        client.create_topic("t", queues=1)
        client.produce("t", [NewMessage(body="one")], durability="sync")
        copy_store(store, copy)
        for module in ("mqstore.writer", "mqstore.query"):
            said = refused(module, copy)
            for named in (store, copy, log, "mqstore store adopt"):
                assert str(named) in said
        with pytest.raises(NoStore, match=re.escape(str(store))):
            at_path.look(copy)
        client.produce("t", [NewMessage(body="two")], durability="sync")
    assert stored(store) == [b"one", b"two"]
