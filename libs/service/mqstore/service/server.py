"""Runs one service: socket, signals, start, serving, shutdown.

Signals are handled here: uvicorn would wait for open polls on the first SIGINT, and skip the
shutdown of the lifespan on a second one. The first signal begins an orderly shutdown with a
deadline; further signals have no effect.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Callable, Generator
from typing import Any, Final, NoReturn, Protocol, cast

import uvicorn
import uvloop

from mqstore.service import auth, cross_origin, logs
from mqstore.service.configuration_error import ConfigurationError
from mqstore.service.fast_path.connection import FastConnection, connection_class
from mqstore.service.handshakes import TlsListener
from mqstore.service.health import Health
from mqstore.service.http import Front
from mqstore.service.process import (
    STOP_SIGNALS,
    end_with_parent,
    freeze_heap,
)
from mqstore.service.settings import Settings, load
from mqstore.service.sockets import address_of, listen
from mqstore.service.termination import write_termination_message
from mqstore.service.tls import ServerTls
from mqstore.storage.errors import StorageError, StoreFailed
from mqstore.storage.host import raise_open_files_limit, restrict_new_files

log = logs.get(__name__)

EXIT_FINE: Final = 0
EXIT_FAILED: Final = 1
EXIT_REFUSED: Final = 2
KEEP_ALIVE_S: Final = 75
FAILURE_GRACE_S: Final = 2.0
"""Seconds for the replies to open requests after the store failed; then the process ends."""


class Service(Protocol):
    """A service as ``run`` runs it. Its methods are called on the event loop."""

    name: str
    health: Health
    failure: asyncio.Future[BaseException]
    """Resolves, on the event loop, with an error after which the process must end."""
    address: str
    """``host:port`` of the listening socket; set before ``start``."""

    async def start(self) -> None:
        """Open the store or connections; requests get 503 meanwhile."""

    @property
    def front(self) -> Front:
        """The ASGI application."""

    async def retire(self) -> None:
        """Hand work over to another process, while requests are served still. Not called after a
        failure."""

    def interrupt(self) -> None:
        """Let waiting requests reply at once, because the service is shutting down."""

    async def stop(self) -> None:
        """Close everything. Called once, after the last reply, also after a failed start."""


def run(
    build: Callable[[Settings], Service], name: str, port: Callable[[Settings], int]
) -> NoReturn:
    """Run a service until it ends; exits with 0, 1 (failed) or 2 (configuration error)."""
    message_path = None
    try:
        settings = load()
        message_path = settings.termination_message_path
        logs.configure(name, settings.log_level, settings.log_format)
        if settings.parent_pid is not None:
            end_with_parent(settings.parent_pid)
        auth.check_binding(settings.host, settings.tokens())
        cross_origin.check(settings)
        raise_open_files_limit()
        restrict_new_files(settings.store_umask)
        listener = listen(settings.listen_fd, settings.host, port(settings))
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            code = runner.run(_live(settings, build, listener))
    except ConfigurationError as error:
        sys.stderr.write(f"mqstore {name}: {error}\n")
        write_termination_message(str(error), message_path)
        code = EXIT_REFUSED
    sys.exit(code)


class _Server(uvicorn.Server):
    def __init__(
        self, config: uvicorn.Config, protocol: type[FastConnection], tls: ServerTls | None
    ) -> None:
        super().__init__(config)
        self._protocol = protocol
        self._tls = tls

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Capture no signals: ``_live`` handles them."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        if self._tls is None:
            await super().startup(sockets)
            return
        listeners = [self._listen_with(self._tls, each) for each in sockets or []]
        self.servers = cast(Any, listeners)  # they have the methods of servers that uvicorn calls
        self.started = True

    def _listen_with(self, tls: ServerTls, listener: socket.socket) -> TlsListener:
        protocol = self._protocol

        def connected() -> FastConnection:
            return protocol(
                config=self.config,
                server_state=self.server_state,
                app_state=self.lifespan.state,
            )

        return TlsListener(listener, tls.context, connected, protocol.open, protocol.head_timeout_s)


def _uvicorn(front: Front, settings: Settings, tls: ServerTls | None) -> _Server:
    protocol = connection_class(
        front,
        max_header_size=settings.max_header_size,
        send_timeout_s=settings.send_timeout_s,
        needs_certificate=tls is not None and tls.needs_client_certificate,
    )
    config = uvicorn.Config(
        cross_origin.allow_origins(front, settings),
        http=protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        headers=[("x-content-type-options", "nosniff")],
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=max(1, int(settings.shutdown_timeout_s / 3)),
    )
    config.load()
    return _Server(config, protocol, tls)


async def _live(
    settings: Settings, build: Callable[[Settings], Service], listener: socket.socket
) -> int:
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    for number in STOP_SIGNALS:
        if number == signal.SIGTERM or settings.parent_pid is None:
            loop.add_signal_handler(number, stopping.set)
        else:  # Ctrl-C signals the whole group; `mqstore run` orders the shutdowns
            signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)  # as `mqstore run` blocks them
    tls = ServerTls.of(settings)
    service = build(settings)
    service.address = address_of(listener)
    server = _uvicorn(service.front, settings, tls)
    serving = loop.create_task(server.serve(sockets=[listener]))
    starting = loop.create_task(service.start())
    signalled = loop.create_task(stopping.wait())
    try:
        ends: set[asyncio.Future[Any]] = {signalled, serving, service.failure}
        await asyncio.wait(ends | {starting}, return_when=asyncio.FIRST_COMPLETED)
        if starting.done() and starting.exception() is None:
            freeze_heap()
            service.health.ready()
            log.info("ready", address=service.address)
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        deadline = loop.call_later(settings.shutdown_timeout_s, _give_up, settings)
        if signalled.done() and starting.done():
            retiring = loop.create_task(service.retire())
            await asyncio.wait({retiring, *ends - {signalled}}, return_when=asyncio.FIRST_COMPLETED)
        code = await _end(settings, service, server, serving, starting)
        deadline.cancel()
        return code
    finally:
        signalled.cancel()


async def _end(
    settings: Settings,
    service: Service,
    server: _Server,
    serving: asyncio.Task[None],
    starting: asyncio.Task[None],
) -> int:
    if service.failure.done():
        why = str(service.failure.result())
        write_termination_message(f"the store failed: {why}", settings.termination_message_path)
        service.health.failed(why)
        asyncio.get_running_loop().call_later(FAILURE_GRACE_S, os._exit, EXIT_FAILED)
    service.health.stopping()
    service.interrupt()
    service.front.interrupt()
    server.should_exit = True
    await asyncio.wait({serving})
    await asyncio.wait({starting})
    if service.failure.done():
        log.critical("the store failed", error=str(service.failure.result()))
        os._exit(EXIT_FAILED)
    try:
        await service.stop()
    except StoreFailed as error:
        log.critical("the store could not be closed", error=str(error))
        write_termination_message(str(error), settings.termination_message_path)
        return EXIT_FAILED
    return _exit_code(settings, starting)


def _exit_code(settings: Settings, starting: asyncio.Task[None]) -> int:
    error = starting.exception()
    if error is None:
        log.info("stopped")
        return EXIT_FINE
    if isinstance(error, (ConfigurationError, StorageError)):
        raise ConfigurationError(str(error))
    log.error("start failed", exc_info=error)
    write_termination_message(f"start failed: {error!r}", settings.termination_message_path)
    return EXIT_FAILED


def _give_up(settings: Settings) -> None:
    why = "the shutdown took too long; the process ends without a clean close"
    log.critical(why)
    write_termination_message(why, settings.termination_message_path)
    os._exit(EXIT_FAILED)
