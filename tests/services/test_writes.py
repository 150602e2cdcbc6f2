"""An administrator holds writes back, and brings what was written to disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqstore.client import Client, NewMessage, ProblemError
from tests.services.service_processes import Process, writer

MESSAGES = [NewMessage(body="x")]


def _client(process: Process) -> Client:
    return Client(process.url, process.url)


def test_pause_outlives_a_restart_and_refuses_messages_alone(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with writer(store) as process, _client(process) as client:
        client.create_topic("t")
        assert not client.writes().paused
        assert client.put_writes(paused=True, reason="moving").paused
    with writer(store, status="not-ready") as process, _client(process) as client:
        with pytest.raises(ProblemError) as caught:
            client.produce("t", MESSAGES)
        assert caught.value.status == 503
        assert caught.value.type == "writes-paused"
        assert caught.value.detail == "moving"
        client.create_topic("other")
        assert client.writes().reason == "moving"
        client.put_writes(paused=False)
        assert client.produce("t", MESSAGES).messages
        assert not client.writes().paused


def test_flush_brings_everything_to_disk(tmp_path: Path) -> None:
    late = {"flush_interval_commit_log": 3_600_000, "flush_commit_log_thorough_interval": 3_600_000}
    with writer(tmp_path / "store", **late) as process, _client(process) as client:
        client.create_topic("t")
        end = client.produce("t", MESSAGES, durability="async").messages[-1]
        assert client.store().flush_behind > 0
        assert client.flush().durable_offset == end.physical_offset + end.size
        status = client.store()
        assert (status.flush_behind, status.dispatch_behind, status.index_behind) == (0, 0, 0)
