"""The tasks of a store-writer that follows a leader: one copies its log, one its config tables."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

from mqstore.service.election import Addresses
from mqstore.service.events import Events
from mqstore.service.remoting import RemotingClient
from mqstore.service.settings import Settings, split_address
from mqstore.storage import MessageStore
from mqstore.writer.durability import DurabilityWaiter
from mqstore.writer.replication.follower import Follower, LinkState, LogDiverged
from mqstore.writer.replication.leader_tables import INTERVAL_S, LeaderTables

INTERVAL_ELECTED_S: Final = 1.0
"""Seconds between two copies of the tables of an elected leader, which may fail at any time."""
COPY_TIMEOUT_S: Final = 1.0
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
        leader: Addresses,
        name: str,
        on_diverged: Callable[[LogDiverged], None],
    ) -> None:
        """Tables are copied where ``leader`` has the address of theirs. ``name`` is that of this
        replica; ``on_diverged`` as of ``Follower``."""
        self.follower = Follower(
            *(store, durability, events, split_address(leader.log)),
            heartbeat_s=settings.ha_send_heartbeat_interval / 1000,
            housekeeping_s=settings.ha_housekeeping_interval / 1000,
            name=name,
            on_diverged=on_diverged,
        )
        self.tables: LeaderTables | None = None
        """None where the address of the leader's tables is not known."""
        runs = [self.follower.run()]
        if leader.tables:
            client = RemotingClient(*split_address(leader.tables))
            note_end = self.follower.note_leader_end
            is_elected = settings.election_lease is not None
            self.tables = LeaderTables(
                *(store, client, note_end), INTERVAL_ELECTED_S if is_elected else INTERVAL_S
            )
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

    async def copy_tables(self) -> None:
        """Copy the tables once more, if the leader still replies within COPY_TIMEOUT_S."""
        if self.tables is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(COPY_TIMEOUT_S):
                    await self.tables.copy_once()
