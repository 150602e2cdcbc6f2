"""The tasks of a store-writer that follows a leader: one copies its log, one its config tables."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from mqstore.service.events import Events
from mqstore.service.remoting import RemotingClient
from mqstore.service.settings import Settings, split_address
from mqstore.storage import MessageStore
from mqstore.writer.durability import DurabilityWaiter
from mqstore.writer.replication.follower import Follower, LinkState, LogDiverged
from mqstore.writer.replication.leader_tables import LeaderTables

CANCEL_INTERVAL_S: Final = 0.1
"""Seconds until a task that goes on is cancelled again."""


class Following:
    """Follows the leader of the settings until ``stop``. Used on one event loop."""

    def __init__(
        self,
        settings: Settings,
        store: MessageStore,
        durability: DurabilityWaiter,
        events: Events,
        on_diverged: Callable[[LogDiverged], None],
    ) -> None:
        """``on_diverged`` as of ``Follower``."""
        assert settings.ha_master_address is not None
        self.follower = Follower(
            *(store, durability, events, split_address(settings.ha_master_address)),
            heartbeat_s=settings.ha_send_heartbeat_interval / 1000,
            housekeeping_s=settings.ha_housekeeping_interval / 1000,
            name=settings.own_replica_name,
            on_diverged=on_diverged,
        )
        self.tables: LeaderTables | None = None
        """None where the address of the leader's tables is not known."""
        runs = [self.follower.run()]
        if settings.master_address is not None:
            client = RemotingClient(*split_address(settings.master_address))
            note_end = self.follower.note_leader_end
            self.tables = LeaderTables(store, client, note_end)
            runs.append(self.tables.run())
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
