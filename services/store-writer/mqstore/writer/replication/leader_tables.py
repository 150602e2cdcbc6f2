"""Copies a leader's config tables over RocketMQ's remoting protocol, as a slave does.

Source: SlaveSynchronize of 4.9.7: every 10 seconds all topics, consumer offsets, delay offsets and
subscription groups. RocketMQ's HA protocol does not say where the leader's log ends; a broker
reports it among its runtime information.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

import msgspec

from mqstore.service import logs
from mqstore.service.remoting import CommandRefused, RemotingClient, RemotingError
from mqstore.storage import MessageStore
from mqstore.storage.errors import StorageError

log = logs.get(__name__)

INTERVAL_S: Final = 10.0
"""Seconds between two copies, as in RocketMQ."""
GET_ALL_TOPIC_CONFIG: Final = 21
GET_BROKER_RUNTIME_INFO: Final = 28
GET_ALL_CONSUMER_OFFSET: Final = 43
GET_ALL_DELAY_OFFSET: Final = 45
GET_ALL_SUBSCRIPTIONGROUP_CONFIG: Final = 201


class _RuntimeInfo(msgspec.Struct):
    table: dict[str, str]


class LeaderTables:
    """Copies the tables to the open store, again and again. Used on one event loop."""

    def __init__(
        self,
        store: MessageStore,
        client: RemotingClient,
        on_end: Callable[[int], None],
        interval_s: float = INTERVAL_S,
    ) -> None:
        """``on_end`` is called with the end of the leader's log."""
        copies = store.table_copies
        assert copies is not None
        self._client = client
        self._on_end = on_end
        self._interval_s = interval_s
        self._tables = (
            (GET_ALL_TOPIC_CONFIG, copies.take_topics),
            (GET_ALL_SUBSCRIPTIONGROUP_CONFIG, copies.take_groups),
            (GET_ALL_CONSUMER_OFFSET, copies.take_consumer_offsets),
            (GET_ALL_DELAY_OFFSET, copies.take_delay_offsets),
        )
        self.copied_at_ms: int | None = None
        """Time of the last copy of all tables; None before the first one."""
        self.reason: str | None = None
        """Why the last attempt failed; None where it did not."""

    async def run(self) -> None:
        """Copy until the task is cancelled."""
        try:
            while True:
                await self.copy_once()
                await asyncio.sleep(self._interval_s)
        finally:
            self._client.close()

    async def copy_once(self) -> None:
        """Copy each table once; a failure is logged."""
        try:
            await self.copy()
            reason = None
        except (RemotingError, StorageError, OSError, UnicodeDecodeError) as error:
            reason = str(error)
        if reason is not None and reason != self.reason:
            log.warning("the leader's topics, groups and offsets are not copied", reason=reason)
        self.reason = reason

    async def copy(self) -> None:
        """Copy each table once. Raises RemotingError, StorageError, OSError, UnicodeDecodeError."""
        for code, take in self._tables:
            response = await self._client.request(code)
            await asyncio.to_thread(take, response.body.decode())
        self.copied_at_ms = time.time_ns() // 1_000_000
        await self._look_at_end()

    async def _look_at_end(self) -> None:
        """Take the leader's end from a broker's runtime information; other leaders have none."""
        try:
            response = await self._client.request(GET_BROKER_RUNTIME_INFO)
            table = msgspec.json.decode(response.body, type=_RuntimeInfo).table
            self._on_end(int(table["commitLogMaxOffset"]))
        except (CommandRefused, msgspec.MsgspecError, KeyError, ValueError):
            return
