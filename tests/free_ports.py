"""Ports for processes that take the number of a port in their settings."""

from __future__ import annotations

import contextlib
import socket
from random import SystemRandom
from typing import Final

PORTS: Final = range(12_000, 30_000)
"""Below the ports that the kernel gives to connections: one of those could be taken before the
process listens."""


def free_port() -> int:
    """Return a port that is free, as is the one two below it, where a broker listens too."""
    while True:
        port = SystemRandom().choice(PORTS)
        with (
            contextlib.suppress(OSError),
            socket.create_server(("", port)),
            socket.create_server(("", port - 2)),
        ):
            return port
