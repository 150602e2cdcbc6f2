"""Listening sockets: bound by this process, or inherited from its parent."""

from __future__ import annotations

import errno
import socket
from typing import Final

from mqstore.service.configuration_error import ConfigurationError

BACKLOG: Final = 2048


def listen(inherited: int | None, host: str, port: int) -> socket.socket:
    """Return the inherited socket, else one bound to the address. Raises ConfigurationError."""
    if inherited is None:
        return bind(host, port)
    try:
        return socket.socket(fileno=inherited)
    except OSError as error:
        raise ConfigurationError(f"descriptor {inherited} is no socket: {error}") from None


def bind(host: str, port: int) -> socket.socket:
    """Listen on an address; port 0 is any free port. Raises ConfigurationError."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        return _bound(found[0][0], found[0][4])
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ConfigurationError(
                f"port {port} on {host} is in use by another process; stop it, or choose another"
            ) from None
        raise ConfigurationError(f"cannot listen on {host} port {port}: {error.strerror}") from None


def address_of(listener: socket.socket) -> str:
    """Return a socket's address as ``address:port``, an IPv6 address in brackets."""
    return format_address(listener.getsockname()[:2])


def format_address(address: tuple[str, int]) -> str:
    """Return ``address:port``, an IPv6 address in brackets."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _bound(family: int, address: tuple[object, ...]) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener
