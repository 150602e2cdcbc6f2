"""Which addresses the service may be made to call, and that it calls no other.

A callback's host is looked up once, when it is registered; every address found must be allowed, and
the one that is kept is what is called, whatever the name resolves to later.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

import httpx

from mqstore.coordinator.errors import CoordinatorError
from mqstore.service.configuration_error import ConfigurationError
from mqstore.service.settings import Settings

Address = IPv4Address | IPv6Address
Lookup = Callable[[str, int], Awaitable[list[str]]]
"""Addresses of a host, for a port. Raises OSError."""
LOOKUP_TIMEOUT_S: Final = 5.0
URL_LENGTH_MAX: Final = 1_000
_PORTS: Final = {"http": 80, "https": 443}
_PUBLIC_V6: Final = ip_network("2000::/3")
"""Global unicast; mapped, translated, local and multicast addresses are outside."""
_WITHIN: Final[tuple[IPv4Network | IPv6Network, ...]] = tuple(
    map(
        ip_network,
        (
            "192.0.0.0/24",  # protocol assignments; 192.0.0.192 has metadata of Oracle's cloud
            "192.88.99.0/24",  # relays of 6to4
            "168.63.129.16/32",  # services of Azure's hosts
            "2001::/23",  # protocol assignments, as Teredo
            "2002::/16",  # 6to4
            "3fff::/20",  # documentation
        ),
    )
)
"""Blocks that ``is_global`` of some versions of Python takes for public, and that are not."""


class TargetRefused(CoordinatorError):
    """The operator did not allow calls to this address."""


@dataclass(frozen=True, slots=True)
class Target:
    """A callback's URL, and the address that it is called at."""

    url: httpx.URL
    address: str

    @property
    def pinned(self) -> httpx.URL:
        """With the address in the host's place."""
        return self.url.copy_with(host=self.address)

    @property
    def host(self) -> str:
        """Host name that the server's certificate must have."""
        return self.url.raw_host.decode()


@dataclass(frozen=True, slots=True)
class Allowed:
    """Hosts by name, and blocks of addresses; ports for both."""

    names: frozenset[str]
    blocks: tuple[IPv4Network | IPv6Network, ...]
    ports: frozenset[int]
    http: bool

    @classmethod
    def of(cls, settings: Settings) -> Allowed:
        """Raises ConfigurationError for what is neither a name nor a block."""
        names, blocks = set(), []
        for each in _parts(settings.callback_hosts):
            try:
                blocks.append(ip_network(each))
            except ValueError:
                names.add(_name(each))
        try:
            ports = frozenset(int(each) for each in _parts(settings.callback_ports))
        except ValueError:
            raise ConfigurationError("callbackPorts takes numbers, with commas between") from None
        return cls(frozenset(names), tuple(blocks), ports, settings.callback_http)

    async def target(self, text: str, lookup: Lookup | None = None) -> Target:
        """The one address that the URL may be called at. Raises TargetRefused."""
        url = self._checked(text)
        host, port = url.raw_host.decode(), _port(url)
        try:
            async with asyncio.timeout(LOOKUP_TIMEOUT_S):
                found = await (lookup or _look_up)(host, port)
        except (OSError, TimeoutError) as error:
            raise TargetRefused(f"the host {host} cannot be found: {error}") from None
        addresses = [_plain(ip_address(each)) for each in found]
        for each in addresses:
            if not self._may_call(each):
                raise TargetRefused(f"{host} is at {each}, which callbackHosts does not allow")
        if not addresses:
            raise TargetRefused(f"the host {host} has no address")
        return Target(url, str(addresses[0]))

    def known(self, text: str, address: str) -> Target:
        """A target that was looked up before: by this process, or by one with other settings.
        Raises TargetRefused."""
        target = Target(self._checked(text), address)
        try:
            may_call = self._may_call(_plain(ip_address(address)))
        except ValueError as error:
            raise TargetRefused(str(error)) from None
        if not may_call:
            raise TargetRefused(
                f"{target.host} is at {address}, which callbackHosts does not allow"
            )
        return target

    def _checked(self, text: str) -> httpx.URL:
        """Raises TargetRefused."""
        try:
            url = httpx.URL(text)
            host = _name(url.raw_host.decode())
            port = _port(url)
        except (httpx.InvalidURL, ValueError) as error:
            raise TargetRefused(f"{text[:100]!r} is no URL: {error}") from None
        if url.scheme != "https" and not (self.http and url.scheme == "http"):
            raise TargetRefused("a callback's URL begins with https://; callbackHttp allows http")
        if url.userinfo or url.fragment or len(text) > URL_LENGTH_MAX:
            raise TargetRefused("leave user, password and fragment out of a callback's URL")
        if port not in self.ports:
            raise TargetRefused(f"port {port} is not among callbackPorts")
        if not self._knows(host):
            raise TargetRefused(f"the host {host} is not among callbackHosts")
        return url

    def _knows(self, host: str) -> bool:
        try:
            return self._in_blocks(_plain(ip_address(host)))
        except ValueError:
            _, dot, rest = host.partition(".")
            return host in self.names or (bool(dot) and f"*.{rest}" in self.names)

    def _may_call(self, address: Address) -> bool:
        return self._in_blocks(address) or _is_public(address)

    def _in_blocks(self, address: Address) -> bool:
        return any(address in block for block in self.blocks)


def _is_public(address: Address) -> bool:
    """Whether an address is public and does not map to another one."""
    if isinstance(address, IPv6Address) and address not in _PUBLIC_V6:
        return False
    is_within = any(address in block for block in _WITHIN)
    return address.is_global and not (is_within or address.is_multicast or address.is_reserved)


def _plain(address: Address) -> Address:
    """Return the IPv4 address of an IPv4-mapped IPv6 address; others unchanged."""
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


async def _look_up(host: str, port: int) -> list[str]:
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in found]


def _port(url: httpx.URL) -> int:
    return _PORTS.get(url.scheme, 0) if url.port is None else url.port


def _name(text: str) -> str:
    return text.lower().removesuffix(".")


def _parts(text: str) -> list[str]:
    return [each.strip() for each in text.split(",") if each.strip()]
