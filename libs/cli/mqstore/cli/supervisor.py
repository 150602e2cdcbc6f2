"""Runs the services as child processes: starts them, waits, and stops them all together.

The children are in the supervisor's process group and end with it. The supervisor binds their
sockets, so that it reports a port in use once, before any service starts. It imports the services'
modules once and forks: the children share the imported modules' memory.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import multiprocessing
import os
import secrets
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing.context import ForkProcess
from typing import TYPE_CHECKING, Any, Final

from mqstore.service import auth, cross_origin
from mqstore.service.configuration_error import ConfigurationError
from mqstore.service.process import STOP_SIGNALS, end_with_parent, name_process
from mqstore.service.settings import Settings, load
from mqstore.service.sockets import address_of, bind
from mqstore.storage.settings import fold, given_variables

if TYPE_CHECKING:
    from mqstore.client import Client

SEGMENT_SIZE: Final = 64 << 20
"""Bytes of a log segment of a new store, unless a setting gives another size; a follower's are its
leader's."""
RETENTION_SETTINGS: Final = frozenset({"file_reserved_time", "clean_file_forcibly_enable"})
"""Unless one of these is in the environment, or ``retention`` is set, the services delete no
message: the directory may be the copy of a broker's store, and the settings file that broker's,
which names a time too. This holds for one run; the store's settings stay."""
_RETENTION_NAMES: Final = frozenset(map(fold, RETENTION_SETTINGS))
STOP_TIMEOUT_S: Final = 15.0
COORDINATOR_STOP_S: Final = 5.0
"""Longest wait for the coordinator to stop before the other services are stopped."""
EXIT_OK, EXIT_FAILED, EXIT_REFUSED = 0, 1, 2


Watch = Callable[["Client", Callable[[], bool]], None]
"""Runs in a thread once the services are ready, with a client of them, until its second argument
returns True."""


def supervise(
    parent_pid: int | None,
    given: dict[str, Any],
    *,
    coordinator: bool,
    watch: Watch | None = None,
) -> int:
    """Run the services until a signal arrives or one of them ends, and return the exit code.

    ``given`` holds settings that override the environment; None means not given. ``coordinator``
    says whether the transaction coordinator runs. ``watch`` is called once they are ready.
    """
    try:
        if parent_pid is not None:
            end_with_parent(parent_pid)
        settings = load(**{name: value for name, value in given.items() if value is not None})
        auth.check_binding(settings.host, settings.tokens())
        cross_origin.check(settings)
        with contextlib.closing(
            _Supervisor(settings, coordinator=coordinator, watch=watch)
        ) as supervisor:
            return supervisor.run()
    except ConfigurationError as refusal:
        print(f"mqstore: {refusal}", file=sys.stderr)
        return EXIT_REFUSED


class _Supervisor:
    """Starts the child processes and stops them all when one ends or a signal arrives."""

    def __init__(self, settings: Settings, *, coordinator: bool, watch: Watch | None) -> None:
        self._settings = settings
        self._watch = watch
        self._ports = {"writer": settings.writer_port, "query": settings.query_port}
        if coordinator:
            self._ports["coordinator"] = settings.coordinator_port
        self._environment = _child_settings(settings)
        self._wake, self._waker = os.pipe()
        os.set_blocking(self._waker, False)
        self._stopping = False
        self._code = EXIT_OK
        self._addresses: dict[str, str] = {}
        self._children: dict[str, ForkProcess] = {}

    def run(self) -> int:
        """Start the services, wait for a signal or the end of one, stop all; the exit code."""
        with self._signals_wake():
            self._start()
            # Python waits for it at the end: a thread that used TLS after OpenSSL's own end of the
            # process would crash it. It ends soon after the services.
            threading.Thread(target=self._announce, name="announce").start()
            while not self._stopping and not self._ended():
                self._sleep(None)
            self._stop()
        return self._code

    def close(self) -> None:
        """Close the pipe that signals write to."""
        os.close(self._wake)
        os.close(self._waker)

    @contextlib.contextmanager
    def _signals_wake(self) -> Iterator[None]:
        for number in STOP_SIGNALS:
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
        scheme = "http://" if settings.tls_cert is None else "https://"
        with contextlib.ExitStack() as sockets:
            bound = {
                name: sockets.enter_context(bind(settings.host, port))
                for name, port in self._ports.items()
            }
            for name, listener in bound.items():
                self._addresses[name] = scheme + _reachable(address_of(listener))
            for name in bound:
                importlib.import_module(f"mqstore.{name}.__main__")
            gc.freeze()  # a collection in a child would copy the pages of what was imported
            for name in bound:
                if not self._stopping:
                    self._children[name] = self._spawn(name, bound)

    def _spawn(self, name: str, bound: Mapping[str, socket.socket]) -> ForkProcess:
        # Signals stay blocked until the child handles them, so that Ctrl-C during its start stops
        # it in order too.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
        try:
            child = multiprocessing.get_context("fork").Process(
                name=name, target=self._become, args=(name, bound)
            )
            child.start()
            return child
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _become(self, name: str, bound: Mapping[str, socket.socket]) -> None:
        """Run a service in this process, which was just forked. Exits with the service's code."""
        signal.set_wakeup_fd(-1)
        self.close()
        for other, listener in bound.items():
            if other != name:
                listener.close()
        name_process(f"mqstore-{name}")
        os.environ.update(self._environment)
        os.environ["MQSTORE_LISTEN_FD"] = str(bound[name].fileno())
        if name in ("coordinator", "query"):
            os.environ.update(self._upstream_settings(name))
        importlib.import_module(f"mqstore.{name}.__main__").main()

    def _upstream_settings(self, name: str) -> dict[str, str]:
        """Settings of a service that depend on the addresses of those that it calls."""
        settings = {}
        if name == "coordinator":
            settings["MQSTORE_WRITER_URL"] = self._addresses["writer"]
        elif "coordinator" in self._addresses:
            settings["MQSTORE_COORDINATOR_URL"] = self._addresses["coordinator"]
        certificate = self._settings.tls_cert
        if certificate is not None and self._settings.upstream_ca is None:
            settings["MQSTORE_UPSTREAM_CA"] = str(certificate)
        return settings

    def _announce(self) -> None:
        """Print the banner once all services are ready."""
        from mqstore.cli import banner  # slow, so only now that all are starting

        text = banner.await_ready(self._addresses, self._settings, lambda: self._stopping)
        if text is None:
            return
        print(text, flush=True)
        if self._watch is not None:
            with banner.client_of(self._addresses, self._settings) as client:
                self._watch(client, lambda: self._stopping)

    def _ended(self) -> bool:
        """Whether a child has ended; prints the reason and sets the exit code if so."""
        for name, child in self._children.items():
            status = child.exitcode
            if status is None:
                continue
            self._code = EXIT_REFUSED if status == EXIT_REFUSED else EXIT_FAILED
            if status != EXIT_REFUSED:  # the child has printed the reason itself
                print(f"mqstore: the {name} process ended: {_reason(status)}", file=sys.stderr)
            return True
        return False

    def _stop(self) -> None:
        self._stopping = True
        deadline = time.monotonic() + STOP_TIMEOUT_S
        # The coordinator stops first: it saves its progress through store-writer.
        self._end(["coordinator"], time.monotonic() + COORDINATOR_STOP_S)
        if not self._end(list(self._children), deadline):
            self._kill()
            return
        if self._code == EXIT_OK and any(c.exitcode for c in self._children.values()):
            self._code = EXIT_FAILED

    def _end(self, names: Sequence[str], deadline: float) -> bool:
        """Terminate children by name; whether they ended before ``deadline``."""
        children = [self._children[name] for name in names if name in self._children]
        for child in children:
            if child.exitcode is None:
                child.terminate()
        while any(child.exitcode is None for child in children):
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            self._sleep(left)
        return True

    def _kill(self) -> None:
        self._code = EXIT_FAILED
        for child in self._children.values():
            if child.exitcode is None:
                child.kill()
                child.join()
        print("mqstore: a service did not end in time and was killed", file=sys.stderr)

    def _sleep(self, timeout_s: float | None) -> None:
        """Wait until a signal arrives, a child ends or ``timeout_s`` has passed."""
        ready, _, _ = select.select([self._wake], [], [], timeout_s)
        if ready:
            os.read(self._wake, 4096)


def _child_settings(settings: Settings) -> dict[str, str]:
    """Environment variables that the children get beside our own environment."""
    environment = {
        "MQSTORE_PARENT_PID": str(os.getpid()),
        "MQSTORE_STORE": str(settings.store.absolute()),
        "MQSTORE_HOST": settings.host,
    }
    for name in ("broker_role", "ha_master_address", "master_address"):
        if (value := getattr(settings, name)) is not None:
            environment[f"MQSTORE_{name.upper()}"] = value
    tokens = settings.tokens()
    if tokens and "system" not in tokens:  # the coordinator alone needs this token
        environment["MQSTORE_TOKEN_SYSTEM"] = secrets.token_hex()
    if "log_level" not in settings.model_fields_set:
        environment["MQSTORE_LOG_LEVEL"] = "warning"
    given = settings.store_config.model_fields_set
    if "mapped_file_size_commit_log" not in given and not settings.follows:
        environment["MQSTORE_MAPPED_FILE_SIZE_COMMIT_LOG"] = str(SEGMENT_SIZE)
    in_environment = {fold(name) for name, _ in given_variables(os.environ)}
    if "retention" not in settings.model_fields_set and not in_environment & _RETENTION_NAMES:
        environment["MQSTORE_RETENTION"] = "false"
    return environment


def _reachable(address: str) -> str:
    """An address that clients can connect to: loopback in place of a wildcard."""
    return address.replace("0.0.0.0", "127.0.0.1").replace("[::]", "[::1]")  # noqa: S104 (no bind)


def _reason(status: int) -> str:
    if status < 0:
        return f"killed by {signal.Signals(-status).name}"
    return f"exit code {status}; the lines above say why"
