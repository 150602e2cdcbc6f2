"""A store-writer that follows one that leads: log and tables are copied, then taken over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx

from mqstore.client import Client, NewMessage
from tests.free_ports import free_port
from tests.services.followers import await_following
from tests.services.service_processes import running, writer

SEGMENT_SIZE = 1 << 20


def test_a_follower_of_a_shard_has_the_whole_log_and_all_tables(tmp_path: Path) -> None:
    remoting, ha = free_port(), free_port()
    sizes: dict[str, Any] = {"mapped_file_size_commit_log": SEGMENT_SIZE}
    leads = {"ha_allowed_slaves": "127.0.0.1", "listen_port": remoting, "ha_listen_port": ha}
    follows: dict[str, Any] = {
        "broker_role": "SLAVE",
        "replica_name": "second",
        "ha_master_address": f"127.0.0.1:{ha}",
        "master_address": f"127.0.0.1:{remoting}",
    }
    messages = [NewMessage(body=f"{number}" * 1_500, keys=("k",)) for number in range(700)]
    with writer(tmp_path / "leader", **sizes, **leads) as process, Client(process.url) as leader:
        leader.create_topic("orders", queues=2)
        stored = [
            leader.produce("orders", messages[first : first + 100]).messages[0]
            for first in range(0, len(messages), 100)
        ]
        leader.commit("billing", "orders", {0: 1})
        end = leader.store().max_offset
        assert end > 2 * SEGMENT_SIZE
        with running(tmp_path / "follower", **sizes, **follows) as run, run.client() as client:
            await_following(client, lambda now: now.durable_offset == end)
            await_following(client, lambda now: now.tables_copied_at_ms is not None)
            assert client.store().min_offset == 0
            metrics = httpx.get(f"{process.url}/metrics").text
            assert 'mqstore_replication_lag_bytes{slave="second"} 0.0' in metrics
            assert client.message(stored[0].offset_msg_id).body == messages[0].body
            assert client.topic("orders").write_queues == 2
            assert client.offsets("billing", topic="orders").offsets[0].committed == 1
            client.promote()
            assert client.receive("billing", "orders").messages
