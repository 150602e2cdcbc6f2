"""Copies a master's config tables over RocketMQ's remoting protocol, as a slave does.

Source: SlaveSynchronize of 4.9.7: every 10 seconds all topics, consumer offsets, delay offsets and
subscription groups. RocketMQ's HA protocol does not say where the leader's log ends; a broker
reports it among its runtime information.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec

from mqstore.service.remoting import CommandRefused, RemotingClient, RemotingError, RequestCode
from mqstore.storage import MessageStore
from mqstore.storage.errors import StorageError
from mqstore.storage.status import TableName
from mqstore.writer.replication.follower import CopiedTables, run_to_end

INTERVAL_S: Final = 10.0
"""Seconds between two copies, as in RocketMQ."""
TABLES: Final = (
    (RequestCode.GET_ALL_TOPIC_CONFIG, TableName.TOPICS),
    (RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, TableName.GROUPS),
    (RequestCode.GET_ALL_CONSUMER_OFFSET, TableName.CONSUMER_OFFSETS),
    (RequestCode.GET_ALL_DELAY_OFFSET, TableName.DELAY_OFFSETS),
)


class _RuntimeInfo(msgspec.Struct):
    table: dict[str, str]


class LeaderTables:
    """Copies the tables to the open store, again and again. Used on one event loop."""

    def __init__(
        self,
        store: MessageStore,
        client: RemotingClient,
        on_end: Callable[[int], None],
        is_slave: asyncio.Event,
        tables: CopiedTables,
        interval_s: float = INTERVAL_S,
    ) -> None:
        """``on_end`` is called with the end of the leader's log. Nothing is copied unless
        ``is_slave`` is set: a leader of mqstore sends its tables. ``tables`` notes the results."""
        copies = store.table_copies
        assert copies is not None
        self._client = client
        self._on_end = on_end
        self._is_slave = is_slave
        self._tables = tables
        self._interval_s = interval_s
        self._take = copies.take_whole
        self._survey = copies.survey

    async def run(self) -> None:
        """Copy until the task is cancelled."""
        try:
            while True:
                await self._is_slave.wait()
                await self.copy_once()
                await asyncio.sleep(self._interval_s)
        finally:
            self._client.close()

    async def check(self) -> None:
        """Look at the leader's topics, groups and settings, and copy nothing. A leader that cannot
        be reached here is looked at with each copy.

        Raises LeaderLogRefused for what mqstore cannot serve.
        """
        with contextlib.suppress(RemotingError, UnicodeDecodeError):
            for code, table in TABLES[:2]:
                response = await self._client.request(code)
                await asyncio.to_thread(self._survey.take_table, table, response.body.decode())
            response = await self._client.request(RequestCode.GET_BROKER_CONFIG)
            self._survey.take_settings(response.body.decode())

    async def copy_once(self) -> None:
        """Copy each table once; a failure is logged."""
        try:
            await self.copy()
            self._tables.note(None)
        except (RemotingError, StorageError, OSError, UnicodeDecodeError) as error:
            self._tables.note(str(error))

    async def copy(self) -> None:
        """Copy each table once. Raises RemotingError, StorageError, OSError, UnicodeDecodeError."""
        for code, table in TABLES:
            response = await self._client.request(code)
            await run_to_end(partial(self._take, table, response.body.decode()))
        await self._look_at_end()

    async def _look_at_end(self) -> None:
        """Take the leader's end from a broker's runtime information; other leaders have none."""
        try:
            response = await self._client.request(RequestCode.GET_BROKER_RUNTIME_INFO)
            table = msgspec.json.decode(response.body, type=_RuntimeInfo).table
            self._on_end(int(table["commitLogMaxOffset"]))
        except (CommandRefused, msgspec.MsgspecError, KeyError, ValueError):
            return
