"""``mqstore run``: store-writer and query on this machine, until Ctrl-C.

Both are children in our own process group and end with us. Their sockets are bound here, so that a
port in use is said once, before anything starts.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final

import typer

from mqstore.client import Client, ClientError, Store, Target
from mqstore.service import auth
from mqstore.service.process import end_with_parent
from mqstore.service.refusal import Refused
from mqstore.service.settings import Settings, load
from mqstore.service.sockets import address_of, bind

LOCAL_SEGMENT_SIZE: Final = 64 << 20
"""mappedFileSizeCommitLog of a store made here, unless a setting says otherwise."""
STOP_TIMEOUT_S: Final = 15.0
PROBE_INTERVAL_S: Final = 0.05
EXIT_FINE, EXIT_FAILED, EXIT_REFUSED = 0, 1, 2
_STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run(
    store: Annotated[
        Path | None, typer.Option(help="Store directory. [default: data/store]")
    ] = None,
    writer_port: Annotated[int | None, typer.Option(help="store-writer. [default: 8081]")] = None,
    query_port: Annotated[int | None, typer.Option(help="query. [default: 8082]")] = None,
    host: Annotated[str | None, typer.Option(help="Address. [default: 127.0.0.1]")] = None,
    with_parent: Annotated[
        bool, typer.Option(hidden=True, help="End when the process that started us ends.")
    ] = False,
) -> None:
    """Run store-writer and query over a store directory, until Ctrl-C.

    Exit codes: 0 stopped, 1 a service failed, 2 refused (port in use, store locked…).
    """
    given = {"store": store, "writer_port": writer_port, "query_port": query_port, "host": host}
    try:
        if with_parent:
            end_with_parent(os.getppid())
        settings = load(**{name: value for name, value in given.items() if value is not None})
        auth.check_binding(settings.host, settings.tokens())
        with contextlib.closing(_Supervisor(settings)) as supervisor:
            code = supervisor.run()
    except Refused as refusal:
        typer.echo(f"mqstore: {refusal}", err=True)
        code = EXIT_REFUSED
    raise typer.Exit(code)


class _Supervisor:
    """Starts the children, waits, and ends them all when one ends or a signal comes."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._wake, self._waker = os.pipe()
        os.set_blocking(self._waker, False)
        self._stopping = False
        self._code = EXIT_FINE
        self._addresses: dict[str, str] = {}
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    def run(self) -> int:
        with self._signals_wake():
            self._start()
            threading.Thread(target=self._announce, name="announce", daemon=True).start()
            while not self._stopping and not self._ended():
                self._sleep(None)
            self._stop()
        return self._code

    def close(self) -> None:
        os.close(self._wake)
        os.close(self._waker)

    @contextlib.contextmanager
    def _signals_wake(self) -> Iterator[None]:
        for number in _STOP_SIGNALS:
            signal.signal(number, self._on_signal)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(-1)

    def _on_signal(self, *_: object) -> None:
        self._stopping = True

    def _start(self) -> None:
        settings = self._settings
        ports = {"writer": settings.writer_port, "query": settings.query_port}
        with contextlib.ExitStack() as sockets:
            bound = {
                name: sockets.enter_context(bind(settings.host, port))
                for name, port in ports.items()
            }
            for name, listener in bound.items():
                self._addresses[name] = "http://" + _reachable(address_of(listener))
                self._children[name] = self._spawn(name, listener)

    def _spawn(self, name: str, listener: socket.socket) -> subprocess.Popen[bytes]:
        environment = dict(os.environ) | _child_settings(self._settings)
        environment["MQSTORE_LISTEN_FD"] = str(listener.fileno())
        return subprocess.Popen(  # noqa: S603 (our own interpreter and modules)
            [sys.executable, "-m", f"mqstore.{name}"],
            env=environment,
            pass_fds=(listener.fileno(),),
            stdin=subprocess.DEVNULL,
        )

    def _announce(self) -> None:
        """Print the banner once both services are ready."""
        token = next(iter(self._settings.tokens().values()), None)
        with Client(self._addresses["writer"], self._addresses["query"], token=token) as client:
            while not self._stopping:
                try:
                    if _is_ready(client):
                        typer.echo(_banner(client, self._addresses))
                        return
                except ClientError:
                    pass
                time.sleep(PROBE_INTERVAL_S)

    def _ended(self) -> bool:
        """Whether a child ended by itself; says so and sets the exit code."""
        for name, child in self._children.items():
            status = child.poll()
            if status is None:
                continue
            self._code = EXIT_REFUSED if status == EXIT_REFUSED else EXIT_FAILED
            if status != EXIT_REFUSED:  # its own line is on the terminal already
                typer.echo(f"mqstore: the {name} process ended: {_reason(status)}", err=True)
            return True
        return False

    def _stop(self) -> None:
        self._stopping = True
        deadline = time.monotonic() + STOP_TIMEOUT_S
        for child in self._children.values():
            if child.poll() is None:
                child.terminate()
        while any(child.poll() is None for child in self._children.values()):
            left = deadline - time.monotonic()
            if left <= 0:
                self._kill()
                return
            self._sleep(left)
        if self._code == EXIT_FINE and any(c.returncode for c in self._children.values()):
            self._code = EXIT_FAILED

    def _kill(self) -> None:
        self._code = EXIT_FAILED
        for child in self._children.values():
            if child.poll() is None:
                child.kill()
                child.wait()
        typer.echo("mqstore: a service did not end in time and was killed", err=True)

    def _sleep(self, timeout_s: float | None) -> None:
        """Until a signal or a child's end."""
        ready, _, _ = select.select([self._wake], [], [], timeout_s)
        if ready:
            os.read(self._wake, 4096)


def _child_settings(settings: Settings) -> dict[str, str]:
    """What the children must know beside their own environment and settings file."""
    environment = {
        "MQSTORE_PARENT_PID": str(os.getpid()),
        "MQSTORE_STORE": str(settings.store.absolute()),
        "MQSTORE_HOST": settings.host,
    }
    if "log_level" not in settings.model_fields_set:
        environment["MQSTORE_LOG_LEVEL"] = "warning"
    if "mapped_file_size_commit_log" not in settings.store_config.model_fields_set:
        environment["MQSTORE_MAPPED_FILE_SIZE_COMMIT_LOG"] = str(LOCAL_SEGMENT_SIZE)
    return environment


def _is_ready(client: Client) -> bool:
    return all(client.health(target).status == "ready" for target in Target)


def _banner(client: Client, addresses: dict[str, str]) -> str:
    store = client.store()
    recovery = client.recovery()
    lines = [
        "mqstore is ready. Ctrl-C stops it.",
        f"  store         {store.root} (RocketMQ {store.format} format)",
        f"  recovered     {_recovered(store, recovery.plan)}",
        f"  store-writer  {addresses['writer']}   API pages: {addresses['writer']}/docs",
        f"  query         {addresses['query']}   API pages: {addresses['query']}/docs",
    ]
    if store.read_only_reason:
        lines.append(f"  READ-ONLY     {store.read_only_reason}")
    return "\n".join(lines)


def _recovered(store: Store, plan: dict[str, object]) -> str:
    text = f"offsets {store.min_offset} to {store.max_offset}, {store.topics} topics"
    reason = plan.get("startReason")
    return f"{text} ({reason})" if reason else text


def _reachable(address: str) -> str:
    """An address to call: a wildcard listens on loopback too."""
    return address.replace("0.0.0.0", "127.0.0.1").replace("[::]", "[::1]")  # noqa: S104 (no bind)


def _reason(status: int) -> str:
    if status < 0:
        return f"killed by {signal.Signals(-status).name}"
    return f"exit code {status}; the lines above say why"
