"""The leader's ports: slaves copy the log at one, topics, groups and offsets at another."""

from __future__ import annotations

import socket
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Final

from mqstore.service import logs
from mqstore.service.configuration_error import ConfigurationError
from mqstore.service.remoting import RemotingServer
from mqstore.service.settings import Settings
from mqstore.service.sockets import address_of, bind
from mqstore.storage import MessageStore
from mqstore.writer.replication.ha_server import HaServer
from mqstore.writer.replication.slave import HaOptions
from mqstore.writer.replication.table_requests import handlers

log = logs.get(__name__)

FAST_PORT_BELOW: Final = 2
"""A slave requests the topics at its master's port less this, which RocketMQ calls VIP channel."""


class AllowedSlaves:
    """The addresses of ``haAllowedSlaves``."""

    def __init__(self, text: str) -> None:
        """Raises ConfigurationError for a part that is neither an IP address nor a block."""
        self._blocks = [_block(part.strip()) for part in text.split(",") if part.strip()]

    def __bool__(self) -> bool:
        return bool(self._blocks)

    def __contains__(self, address: str) -> bool:
        try:
            found = ip_address(address)
        except ValueError:  # the connection is lost
            return False
        mapped = found.ipv4_mapped if found.version == 6 else None
        return any((mapped or found) in block for block in self._blocks)


class Leader:
    """Serves slaves of RocketMQ, if the settings allow any. Used on one event loop."""

    def __init__(self, settings: Settings) -> None:
        """Raises ConfigurationError."""
        self._settings = settings
        self._allowed = AllowedSlaves(settings.ha_allowed_slaves)
        if settings.broker_role == "SYNC_MASTER" and not self._allowed:
            raise ConfigurationError(
                "brokerRole is SYNC_MASTER, and no slave may connect: name the addresses of slaves "
                "in haAllowedSlaves, or remove brokerRole"
            )
        self._remoting: RemotingServer | None = None
        self.ha: HaServer | None = None
        """None until slaves may connect."""

    async def start(self, store: MessageStore) -> None:
        """Open the ports, if slaves are allowed. Raises ConfigurationError where one is in use."""
        if not self._allowed:
            return
        settings = self._settings
        listener = bind(settings.host, settings.ha_listen_port)
        ha_port = listener.getsockname()[1]
        self.ha = HaServer(store, _options(settings), self._allowed.__contains__)
        await self.ha.start(listener)
        self._remoting = RemotingServer(
            handlers(store, settings.listen_port, ha_port),
            allows=self._allowed.__contains__,
        )
        for each in self._remoting_listeners():
            await self._remoting.start(each)
        log.info("slaves may copy the log", ha=address_of(listener), remoting=settings.listen_port)

    async def stop(self) -> None:
        """Close the ports and all connections."""
        for server in (self.ha, self._remoting):
            if server is not None:
                await server.close()

    def _remoting_listeners(self) -> list[socket.socket]:
        host, port = self._settings.host, self._settings.listen_port
        return [bind(host, each) for each in (port, port - FAST_PORT_BELOW)]


def _block(text: str) -> IPv4Network | IPv6Network:
    try:
        return ip_network(text)
    except ValueError as error:
        raise ConfigurationError(
            f"setting haAllowedSlaves: {error}; name IP addresses or blocks, such as 10.1.2.3 or "
            "10.1.0.0/16, joined by commas"
        ) from None


def _options(settings: Settings) -> HaOptions:
    return HaOptions(
        heartbeat_s=settings.ha_send_heartbeat_interval / 1000,
        housekeeping_s=settings.ha_housekeeping_interval / 1000,
        batch_size=settings.ha_transfer_batch_size,
        from_last_segment=settings.sync_from_last_file,
    )
