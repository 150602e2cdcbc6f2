"""Processes that are forks of one server process, which has imported their modules.

The import of its modules takes most of the time in which a service starts, and the tests start
hundreds of services. A forked process runs a module as ``python -m`` does, with an environment,
arguments and files of its own. It shares imported modules and their caches with the server.

``python -m tests.forked_processes FD`` is the server; it ends when the other end of FD is closed.
``python -m tests.forked_processes FD LISTENER`` also serves those that connect to a socket.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import faulthandler
import functools
import gc
import importlib
import inspect
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Final, NoReturn

from tests.machine_disk import show_large_volumes_half_empty

ROOT: Final = Path(__file__).parents[1]
PRELOADED: Final = (
    "anyio._backends._asyncio",  # imported when a service closes its client
    "mqstore.cli.main",
    "mqstore.client",
    "mqstore.coordinator.__main__",
    "mqstore.query.__main__",
    "mqstore.writer.__main__",
    "pydantic.v1",  # FastAPI imports it for the first route
    "pytest",  # test modules are imported by programs
    "tests.compat.ours",
    "tests.unit.storage.puts",
)
"""Modules that the server imports. None of them may start a thread."""

COMMAND_TIMEOUT_S: Final = 60.0
LISTENER_VARIABLE: Final = "MQSTORE_LISTEN_FD"
SERVER_VARIABLE: Final = "TESTS_FORK_SERVER"
"""Environment variable: the abstract address of the server that the processes of a run share."""
REQUEST_BYTES: Final = 1 << 17
"""Maximum size of a request, which contains a whole environment."""


class ForkedProcess:
    """A process with the methods of ``subprocess.Popen[str]`` that tests use. Not thread-safe."""

    def __init__(self, status: IO[bytes], output: IO[str], errors: IO[str]) -> None:
        self._status = status
        self.stdout = output
        """The process's standard output: a pipe, or a file that is whole once it has ended."""
        self._errors = errors
        self._texts: tuple[str, str] | None = None
        self.pid = int(status.readline())
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return the exit code, or None while the process runs."""
        return self._await_status(0)

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code; raises subprocess.TimeoutExpired after ``timeout`` seconds."""
        code = self._await_status(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
        return code

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Wait for the end and return what the process wrote to stdout and to stderr."""
        self.wait(timeout)
        if self._texts is None:
            self._texts = _read_all(self.stdout), _read_all(self._errors)
        return self._texts

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _await_status(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._status], [], [], timeout)[0]:
            with self._status:
                self.returncode = int(self._status.readline())
        return self.returncode


def start(
    module: str,
    *arguments: str,
    environment: Mapping[str, str] | None = None,
    listener: socket.socket | None = None,
    interactive: bool = False,
    directory: Path = ROOT,
) -> ForkedProcess:
    """Run ``python -m module arguments`` in a fork of this process's server. A module whose name
    ends with ``.py`` is the path of a program.

    The environment is this process's by default. ``listener`` is inherited; MQSTORE_LISTEN_FD names
    it. Standard input is empty. ``interactive``: the process leads a session of its own, and its
    output, at most what a pipe holds, can be read while it runs. ``directory``: where it runs.
    """
    reading, writing = os.pipe()
    errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 (of the process)
    if interactive:
        output_reading, output_writing = os.pipe()
        output: IO[str] = os.fdopen(output_reading)
    else:
        output = tempfile.TemporaryFile("w+")  # noqa: SIM115 (of the process)
        output_writing = os.dup(output.fileno())
    request = {
        "module": module,
        "arguments": arguments,
        "environment": dict(os.environ if environment is None else environment),
        "interactive": interactive,
        "directory": str(directory),
    }
    files = [writing, output_writing, errors.fileno()]
    files += [] if listener is None else [listener.fileno()]
    try:
        socket.send_fds(_server(), [json.dumps(request).encode()], files)
    finally:
        os.close(writing)
        os.close(output_writing)
    return ForkedProcess(os.fdopen(reading, "rb", buffering=0), output, errors)


def start_program(text: str, *arguments: str, interactive: bool = False) -> ForkedProcess:
    """Run ``python -c text arguments`` in a fork of this process's server, as ``start`` does."""
    return start("-c", text, *arguments, interactive=interactive)


def run_mqstore(
    *arguments: str, environment: Mapping[str, str] | None = None, directory: Path = ROOT
) -> subprocess.CompletedProcess[str]:
    """Run a ``mqstore`` command to its end, which must come within COMMAND_TIMEOUT_S."""
    process = start("mqstore.cli.main", *arguments, environment=environment, directory=directory)
    output, errors = process.communicate(COMMAND_TIMEOUT_S)
    return subprocess.CompletedProcess(arguments, process.wait(), output, errors)


def share() -> None:
    """Start a server that this process and those that it starts from now on use."""
    name = f"forks-{uuid.uuid4()}"
    with _new_socket() as listener:
        listener.bind(f"\0{name}")
        listener.listen()
        _start_server(listener)
    os.environ[SERVER_VARIABLE] = name


@functools.cache
def _server() -> socket.socket:
    """The connection to the server of this process: the shared one, or one of its own, which is
    started at the first use."""
    name = os.environ.get(SERVER_VARIABLE)
    if name is None:
        return _start_server()
    connection = _new_socket()
    connection.connect(f"\0{name}")
    atexit.register(connection.close)
    return connection


def _start_server(*listener: socket.socket) -> socket.socket:
    """Start a server that ends with this process, and return a connection to it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    descriptors = [each.fileno() for each in (theirs, *listener)]
    process = subprocess.Popen(
        [sys.executable, "-m", __name__, *map(str, descriptors)],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        pass_fds=descriptors,
    )
    theirs.close()

    def close() -> None:
        ours.close()
        process.wait()

    atexit.register(close)
    return ours


def _new_socket() -> socket.socket:
    return socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def _read_all(file: IO[str]) -> str:
    if file.closed:
        return ""
    with file:
        if file.seekable():
            file.seek(0)
        return file.read()


def _serve(connections: list[socket.socket]) -> None:
    """Fork a process for each request, until the other end of the first connection is closed. The
    second socket, if any, is where further ones connect."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    owner, listeners = connections[0], connections[1:]
    while True:
        for ready in select.select(connections, [], [])[0]:
            if ready in listeners:
                connections.append(ready.accept()[0])
                continue
            data, files, _, _ = socket.recv_fds(ready, REQUEST_BYTES, 4)
            if data:
                _fork(connections, data, files)
            elif ready is owner:
                return
            else:
                connections.remove(ready)
                ready.close()


def _fork(connections: list[socket.socket], request: bytes, files: list[int]) -> None:
    _import_services()
    if os.fork() == 0:
        for connection in connections:
            connection.close()
        _monitor(json.loads(request), *files)
    for file in files:
        os.close(file)
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass  # an ended monitor


@functools.cache
def _import_services() -> None:
    """Import what forked processes share, before the first of them."""
    for module in PRELOADED:
        importlib.import_module(module)
    show_large_volumes_half_empty()
    asyncio.run(_build_services())
    assert len(list(Path("/proc/self/task").iterdir())) == 1, "a fork copies one thread only"
    gc.freeze()


async def _build_services() -> None:
    """Build each service once: most of what a further one takes is then in caches, as those of
    regular expressions and types."""
    from mqstore.client.tls import public_authorities
    from mqstore.coordinator.service import CoordinatorService
    from mqstore.query.__main__ import build as build_query
    from mqstore.service.settings import Settings
    from mqstore.writer.__main__ import build as build_writer

    for build in (build_writer, build_query, CoordinatorService):
        build(Settings(store=ROOT / "build" / "no-store"))
    for trust_env in (False, True):
        public_authorities(trust_env=trust_env)
    inspect.getsourcelines(main)  # as FastAPI does at the first request of a route


def _monitor(request: dict[str, Any], status: int, *files: int) -> None:
    """Start the requested process, and report its id and its exit code. Never returns."""
    pid = os.fork()
    if pid == 0:
        os.close(status)
        _run(request, *files)
    for file in files:
        os.close(file)
    os.write(status, f"{pid}\n".encode())
    _, ended = os.waitpid(pid, 0)
    os.write(status, f"{os.waitstatus_to_exitcode(ended)}\n".encode())
    os._exit(0)


def _run(request: dict[str, Any], output: int, errors: int, *listener: int) -> None:
    """Become the requested process. Never returns."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if request["interactive"]:
        os.setsid()
    for file, standard in ((output, 1), (errors, 2)):
        os.dup2(file, standard)
        os.close(file)
    faulthandler.enable(file=2)
    os.chdir(request["directory"])
    os.environ.clear()
    os.environ.update(request["environment"])
    for descriptor in listener:
        os.environ[LISTENER_VARIABLE] = str(descriptor)
    module, arguments = request["module"], request["arguments"]
    if module == "-c":
        text, *arguments = arguments
    sys.argv = [module, *arguments]
    for name in (module, f"{module}.__main__"):  # what runs must not be imported already
        if not hasattr(sys.modules.get(name), "__path__"):
            sys.modules.pop(name, None)
    try:
        if module == "-c":
            exec(text, {"__name__": "__main__"})
        elif module.endswith(".py"):
            runpy.run_path(module, run_name="__main__")
        else:
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        _end(0)
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            _end(end.code or 0)
        raise


def _end(code: int) -> NoReturn:
    """End as the interpreter does, except that modules and objects are not freed: that would copy
    the server's memory, and cost as much as the start of a service."""
    threading._shutdown()  # type: ignore[attr-defined] # waits for threads that are no daemons
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def main(arguments: Sequence[str]) -> None:
    with contextlib.ExitStack() as stack:
        sockets = [socket.socket(fileno=int(each)) for each in arguments]
        for each in sockets:
            stack.enter_context(each)
        _serve(sockets)


if __name__ == "__main__":
    main(sys.argv[1:])
