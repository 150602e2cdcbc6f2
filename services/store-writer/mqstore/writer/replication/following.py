"""The tasks of a store-writer that follows a leader: one copies its log, one its config tables."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from functools import partial
from typing import Final

from mqstore.service.events import Events
from mqstore.service.ha_tls import HaTls
from mqstore.service.metrics import Traffic
from mqstore.service.remoting import RemotingClient
from mqstore.service.replica_secret import ReplicaSecret
from mqstore.service.settings import Settings, split_address
from mqstore.storage import MessageStore
from mqstore.storage.replication import NONCE_SIZE, FollowerOptions
from mqstore.storage.settings import FlushDiskType
from mqstore.writer.durability import DurabilityWaiter
from mqstore.writer.replication.follower import Divergence, Follower, LinkState
from mqstore.writer.replication.leader_tables import LeaderTables

CANCEL_INTERVAL_S: Final = 0.1
"""Seconds until a task that goes on is cancelled again."""


class Following:
    """Follows a leader until ``stop``. Used on one event loop."""

    def __init__(
        self,
        settings: Settings,
        store: MessageStore,
        durability: DurabilityWaiter,
        events: Events,
        leader: str,
        name: str,
        tls: HaTls | None,
        secret: ReplicaSecret | None,
        traffic: Traffic,
        on_diverged: Callable[[Divergence], None],
        *,
        is_proof_needed: bool,
    ) -> None:
        """``leader`` is the address of its log. Those of a master's tables are ``masterAddress``;
        a leader of mqstore sends them. ``name`` is that of this replica; the others as of
        ``Follower``. ``secret`` is that of the shard's replicas; with one ``is_proof_needed``,
        unless the leader is of a release that proves nothing."""
        self.follower = follower = Follower(
            *(store, durability, events, split_address(leader)),
            FollowerOptions(
                name=name,
                housekeeping_s=settings.ha_housekeeping_interval / 1000,
                nonce=partial(secrets.token_hex, NONCE_SIZE),
                syncs=settings.ha_flush_disk_type is FlushDiskType.SYNC,
                keys=None if secret is None else secret.keys,
                is_proof_needed=secret is not None and is_proof_needed,
            ),
            heartbeat_s=settings.ha_send_heartbeat_interval / 1000,
            tls=tls,
            traffic=traffic,
            on_diverged=on_diverged,
        )
        runs = [follower.run()]
        if settings.election_lease is None and settings.master_address:
            client = RemotingClient(*split_address(settings.master_address))
            tables = LeaderTables(
                *(store, client, follower.note_leader_end, follower.is_slave, follower.tables)
            )
            follower.check_slave = tables.check
            runs.append(tables.run())
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(each) for each in runs]

    async def stop(self) -> None:
        """Stop both tasks; the store receives no more."""
        pending = set(self._tasks)
        while pending:
            for task in pending:
                task.cancel()  # again: a TaskGroup that fails meanwhile drops a cancellation
            _, pending = await asyncio.wait(pending, timeout=CANCEL_INTERVAL_S)
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.follower.link.state = LinkState.STOPPED
