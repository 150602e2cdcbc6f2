"""The leader's ports: slaves copy the log at one, topics, groups and offsets at another."""

from __future__ import annotations

import asyncio
import math
import socket
import ssl
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from mqstore.service import logs
from mqstore.service.events import Events
from mqstore.service.ha_tls import HaTls
from mqstore.service.rate import Rate
from mqstore.service.remoting import RemotingServer
from mqstore.service.settings import Settings
from mqstore.service.sockets import address_of, bind
from mqstore.storage import MessageStore
from mqstore.storage.replication import Connections, InSyncSet
from mqstore.writer.replication.admission import Admission
from mqstore.writer.replication.ha_server import HaServer
from mqstore.writer.replication.in_sync_watch import InSyncWatch, Publish, publish_nowhere
from mqstore.writer.replication.slave import HaOptions
from mqstore.writer.replication.table_requests import handlers

log = logs.get(__name__)

FAST_PORT_BELOW: Final = 2
"""A slave requests the topics at its master's port less this, which RocketMQ calls VIP channel."""


FOLLOWERS_S: Final = 60.0
"""Seconds from the start of a leader after which no follower is waited for: one that lost its
leader connects again within 40."""


def wanted_replicas(settings: Settings) -> int:
    """Replicas that the shard is to have: as `replicasFile` says, `minInSyncReplicas` at least."""
    wanted = 1
    if settings.replicas_file is not None:
        with suppress(OSError, ValueError):
            wanted = int(settings.replicas_file.read_text(encoding="ascii"))
    return max(wanted, settings.min_in_sync_replicas)


class Leader:
    """Serves the copies of the log that the settings admit. Used on one event loop."""

    def __init__(
        self, settings: Settings, events: Events, publish: Publish = publish_nowhere
    ) -> None:
        """``publish`` publishes the names of the copies in sync. Raises ConfigurationError."""
        self._settings = settings
        self._events = events
        self._publish = publish
        self._in_sync_min = settings.min_in_sync_replicas
        self._tls = HaTls.of(settings)
        self.admission = Admission(settings)
        self._remoting: RemotingServer | None = None
        self._started_at = math.inf
        self.ha: HaServer | None = None
        """None until slaves may connect."""
        self.watch: InSyncWatch | None = None
        """None where no slave may connect, and readers see all that is stored."""

    @property
    def connections(self) -> Connections | None:
        """The copies that are connected; None where none may connect."""
        return None if self.ha is None else self.ha.connections

    @property
    def in_sync(self) -> int:
        """Number of copies in sync, this one included."""
        return 1 if self.watch is None else len(self.watch.copies.names)

    @property
    def has_enough_in_sync(self) -> bool:
        """Whether there are ``minInSyncReplicas`` copies in sync."""
        return self._in_sync_min == 1 or self.in_sync >= self._in_sync_min

    @property
    def may_have_followers(self) -> bool:
        """Whether followers of mqstore may have the log: one was connected, or may connect still.
        Any thread."""
        if not self.admission:
            return False
        was_connected = self.ha is not None and self.ha.connections.has_had_followers
        return was_connected or time.monotonic() - self._started_at < FOLLOWERS_S

    def acknowledged(self) -> int | None:
        """Return up to where as many copies have the log as replies wait for; None where there are
        fewer."""
        if self._settings.waits_for_all_in_sync:
            return None if self.watch is None else self.watch.copies.replicated
        count = max(1, self._settings.in_sync_replicas - 1)
        return None if self.ha is None else self.ha.connections.acknowledged_by(count)

    def tables_acknowledged(self) -> int | None:
        """Return the version of the tables that all copies in sync have; None where none may
        connect."""
        return None if self.watch is None else self.watch.copies.tables_replicated

    async def start(self, store: MessageStore, name: str, members: Iterable[str] = ()) -> None:
        """Open the ports, if copies are admitted, and watch which copies are in sync.

        ``name`` is that of this replica; ``members`` as of ``InSyncSet``. Raises ConfigurationError
        where a port is in use.
        """
        if self.admission:
            await self._open_ports(store, name)
        self._started_at = time.monotonic()
        settings = self._settings
        if self.admission or settings.read_up_to_confirmed_offset:
            copies = InSyncSet(
                name,
                members,
                behind_max_s=settings.ha_max_time_slave_not_catchup / 1000,
                now=asyncio.get_running_loop().time(),
            )
            self.watch = InSyncWatch(
                *(copies, store, self.connections, self._events, self._publish),
                syncs=settings.read_up_to_confirmed_offset,
            )
            self.watch.start()

    async def _open_ports(self, store: MessageStore, name: str) -> None:
        settings = self._settings
        listener = bind(settings.host, settings.ha_listen_port)
        ha_port = listener.getsockname()[1]
        options = _options(settings, None if self._tls is None else self._tls.server)
        self.ha = HaServer(store, name, options, self.admission)
        await self.ha.start(listener)
        if self._tls is not None or not self.admission.allowed:
            # followers only, which need no other port
            log.info(
                "followers may copy the log",
                ha=address_of(listener),
                tls=self._tls is not None,
                proof=self.admission.secret is not None,
            )
            return
        self._remoting = RemotingServer(
            handlers(store, settings.listen_port, ha_port),
            allows=self.admission.allowed.__contains__,
        )
        for each in self._remoting_listeners():
            await self._remoting.start(each)
        log.info("slaves may copy the log", ha=address_of(listener), remoting=settings.listen_port)

    async def stop(self) -> None:
        """Close the ports and all connections."""
        if self.watch is not None:
            await self.watch.stop()
        for server in (self.ha, self._remoting):
            if server is not None:
                await server.close()

    @property
    def refused(self) -> int:
        """Connections that the ports refused, or that did not follow the protocols."""
        doors = (None if self.ha is None else self.ha.connections, self._remoting)
        return sum(each.refused for each in doors if each is not None)

    def _remoting_listeners(self) -> list[socket.socket]:
        host, port = self._settings.host, self._settings.listen_port
        return [bind(host, each) for each in (port, port - FAST_PORT_BELOW)]


def _options(settings: Settings, tls: ssl.SSLContext | None) -> HaOptions:
    limit = settings.max_ha_transfer_byte_in_second if settings.ha_flow_control_enable else 0
    batch_size = settings.ha_transfer_batch_size
    return HaOptions(
        rate=Rate(limit),
        heartbeat_s=settings.ha_send_heartbeat_interval / 1000,
        housekeeping_s=settings.ha_housekeeping_interval / 1000,
        batch_size=min(batch_size, limit or batch_size),
        from_last_segment=settings.sync_from_last_file,
        tls=tls,
    )
