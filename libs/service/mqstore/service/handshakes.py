"""A TLS listener that counts and times connections from their first byte.

asyncio reports a connection to the HTTP server only after its handshake. A client could so keep any
number of unfinished handshakes open: they would not count as connections, and never time out.
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
"""Pause after the system rejected an accept, for lack of file descriptors for instance."""


class TlsListener:
    """A listener with the interface of asyncio's servers. Used on the event loop only."""

    def __init__(
        self,
        listener: socket.socket,
        context: ssl.SSLContext,
        protocol: Callable[[], BoundedProtocol],
        places: Connections,
        timeout_s: float,
    ) -> None:
        """Begin to accept. A handshake takes one of ``places`` and is dropped after
        ``timeout_s`` seconds."""
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
        """Stop accepting, and cancel the handshakes in progress."""
        for task in self._tasks:
            task.cancel()

    async def wait_closed(self) -> None:
        """Wait until all handshakes have ended."""
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
                await asyncio.sleep(0)  # a successful accept did not yield to the loop

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
    """The place of a connection among the open ones, until the HTTP protocol takes its own."""

    task: asyncio.Task[None]

    def __init__(self, places: Connections, client: str, connection: socket.socket) -> None:
        self.client = client
        self.connection = connection
        self._places = places
        self._refusal = places.enter(self, client)
        self._has_left = False

    def drop(self) -> None:
        """Free the place, then close the connection, in this order."""
        self.leave()
        # uvloop does not cancel a handshake before its first bytes: shut the socket down.
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)
        self.connection.close()
        self.task.cancel()

    def leave(self) -> None:
        """Free the place. Further calls have no effect."""
        if not self._has_left:
            self._has_left = True
            self._places.leave(self, self.client, self._refusal)
