"""Connections with TLS, counted and timed from their first moment.

An HTTP server is told of one only once TLS is agreed on: a handshake that never ends would take no
place among the open connections, and as many of them as somebody likes would be kept.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable, Coroutine
from typing import Any, Final

from mqstore.service import logs
from mqstore.service.fast_path.bounds import BoundedProtocol
from mqstore.service.limits import Connections

log = logs.get(__name__)

_ACCEPT_PAUSE_S: Final = 0.1
"""After an accept that the system refused (no descriptors left)."""


class TlsListener:
    """Accepts connections for as long as it is open, with close and wait_closed as asyncio's
    servers have them. Used on the event loop only."""

    def __init__(
        self,
        listener: socket.socket,
        context: ssl.SSLContext,
        protocol: Callable[[], BoundedProtocol],
        places: Connections,
        timeout_s: float,
    ) -> None:
        """A handshake takes one of ``places``, and is cut after ``timeout_s``."""
        self._listener = listener
        self._context = context
        self._protocol = protocol
        self._places = places
        self._timeout_s = timeout_s
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        listener.setblocking(False)
        self._begin(self._accept())

    def close(self) -> None:
        """Accept no more, and end the handshakes that are under way."""
        for task in self._tasks:
            task.cancel()

    async def wait_closed(self) -> None:
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self) -> None:
        while True:
            try:
                connection, address = await self._loop.sock_accept(self._listener)
            except OSError as error:
                log.warning("a connection cannot be accepted", error=str(error))
                await asyncio.sleep(_ACCEPT_PAUSE_S)
            else:
                handshake = _Handshake(self._places, address[0], connection)
                handshake.task = self._begin(self._agree(handshake))
                await asyncio.sleep(0)  # an accept that finds one waits for nothing

    async def _agree(self, handshake: _Handshake) -> None:
        def agreed() -> BoundedProtocol:
            protocol = self._protocol()
            protocol.on_connected = handshake.leave
            return protocol

        deadline = self._loop.call_later(self._timeout_s, handshake.drop)
        try:
            await self._loop.connect_accepted_socket(
                agreed,
                handshake.connection,
                ssl=self._context,
                ssl_handshake_timeout=2 * self._timeout_s,  # the loop frees the place too late
            )
        except OSError as error:
            log.debug("no TLS", client=handshake.client, error=str(error))
        finally:
            deadline.cancel()
            handshake.leave()

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


class _Handshake:
    """The place of one connection until HTTP's protocol takes its own."""

    task: asyncio.Task[None]

    def __init__(self, places: Connections, client: str, connection: socket.socket) -> None:
        self.client = client
        self.connection = connection
        self._places = places
        self._refusal = places.enter(self, client)
        self._has_left = False

    def drop(self) -> None:
        """Its place is free before the client can see that it was cut."""
        self.leave()
        # Cancelled before its first bytes, uvloop's handshake goes on: the socket itself ends it.
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)
        self.connection.close()
        self.task.cancel()

    def leave(self) -> None:
        """Called once or more."""
        if not self._has_left:
            self._has_left = True
            self._places.leave(self, self.client, self._refusal)
