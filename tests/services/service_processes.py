"""Real service processes over a store directory, on loopback ports that were free."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mqstore.client import Client, ClientError, Target, make_tls_context
from mqstore.service.sockets import bind
from tests.forked_processes import ForkedProcess
from tests.forked_processes import start as start_forked

START_TIMEOUT_S = 60.0
END_TIMEOUT_S = 60.0
"""From the first signal until a test gives up; far longer than an end takes."""
SEGMENT_SIZE = 8 << 20
COMM_LENGTH_MAX = 15
"""Characters of a process's name that Linux keeps."""
REPOSITORY = Path(__file__).parents[2]
_WITHOUT_OVERRIDE = [
    "setpriv",
    "--bounding-set=-dac_override,-dac_read_search",
    "--inh-caps=-dac_override,-dac_read_search",
]
_MAKE_RUN = [
    "make",
    "run",
    "--old-file=.venv/.ready-to-run",  # what is tested is what is installed
    f"BIN={Path(sys.executable).parent}",
    "ARGS=--writer-port 0 --query-port 0 --coordinator-port 0",
]
_ADDRESS = re.compile(r"(store-writer|query|transactions) +(https?://[^ ]+)")
_PROGRESS = re.compile(r"^mqstore: the \w+ process is starting.*\n", re.MULTILINE)


ANY_DISK = {
    "disk_max_used_space_ratio": 100,
    "disk_space_clean_forcibly_ratio": 100,
    "disk_space_warning_level_ratio": 100,
}
"""However full the disk is that tests run on."""


def environment(**settings: Any) -> dict[str, str]:
    """Our own environment without settings of mqstore or make, and these."""
    settings = {**ANY_DISK, **settings}
    foreign = ("MQSTORE_", "MAKE", "MFLAGS")
    clean = {k: v for k, v in os.environ.items() if not k.upper().startswith(foreign)}
    return clean | {f"MQSTORE_{name.upper()}": str(value) for name, value in settings.items()}


@dataclass
class Run:
    """One ``mqstore run``."""

    process: subprocess.Popen[str] | ForkedProcess
    writer_url: str
    query_url: str
    banner: str
    coordinator_url: str
    """Empty unless it was started too."""

    def client(self, *, token: str | None = None) -> Client:
        urls = self.writer_url, self.query_url
        return Client(*urls, coordinator_url=self.coordinator_url, token=token)

    def children(self) -> list[int]:
        return children_of(self.process.pid)

    def child(self, name: str) -> int:
        """The process id of ``writer``, ``query`` or ``coordinator``."""
        for pid in self.children():
            if Path(f"/proc/{pid}/comm").read_text() == f"mqstore-{name}"[:COMM_LENGTH_MAX] + "\n":
                return pid
        raise AssertionError(f"no {name} process")

    def stop(self, number: int = signal.SIGINT) -> tuple[int, str]:
        """As Ctrl-C does: signal the whole group; exit code and stderr."""
        os.killpg(self.process.pid, number)
        return self.ended()

    def ended(self) -> tuple[int, str]:
        _, errors = self.process.communicate(timeout=END_TIMEOUT_S)
        return self.process.wait(), without_progress(errors)


def without_progress(errors: str) -> str:
    """The stderr of ``mqstore run`` without the progress lines that a slow machine adds."""
    return _PROGRESS.sub("", errors)


def children_of(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def run_arguments(store: Path | None, *arguments: str, coordinator: bool = False) -> list[str]:
    """Return the words of ``mqstore run`` on free ports."""
    command = ["run"] if store is None else ["run", "--store", str(store)]
    command += ["--writer-port", "0", "--query-port", "0", *arguments]
    return command + (["--coordinator-port", "0"] if coordinator else ["--no-coordinator"])


def start(
    store: Path | None,
    *arguments: str,
    plain_user: bool = False,
    under_make: bool = False,
    coordinator: bool = False,
    **settings: Any,
) -> subprocess.Popen[str] | ForkedProcess:
    """``mqstore run`` on free ports; root's right to do everything taken away for a plain user."""
    words = run_arguments(store, *arguments, coordinator=coordinator)
    if not plain_user and not under_make:
        given = environment(**settings)
        return start_forked("mqstore.cli.main", *words, environment=given, interactive=True)
    command = [sys.executable, "-m", "mqstore.cli.main", *words]
    if plain_user and os.geteuid() == 0:
        command = [*_WITHOUT_OVERRIDE, *command]
    if under_make:
        command = [*_MAKE_RUN, f"STORE={store}".replace("$", "$$")]
    return subprocess.Popen(
        command,
        cwd=REPOSITORY,
        env=environment(**settings),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@contextlib.contextmanager
def running(
    store: Path,
    *arguments: str,
    under_make: bool = False,
    coordinator: bool = False,
    **settings: Any,
) -> Iterator[Run]:
    """``mqstore run``, ready; whatever is left of it is killed at the end.

    By ``make run`` always with the coordinator, else if ``coordinator`` is set.
    """
    process = start(store, *arguments, under_make=under_make, coordinator=coordinator, **settings)
    with ready(process, services=3 if coordinator or under_make else 2) as run:
        yield run


@contextlib.contextmanager
def ready(process: subprocess.Popen[str] | ForkedProcess, services: int = 2) -> Iterator[Run]:
    """A command that runs so many services, once it has said so; killed at the end."""
    try:
        yield _ready(process, services)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def _ready(process: subprocess.Popen[str] | ForkedProcess, services: int) -> Run:
    addresses: dict[str, str] = {}
    banner = ""
    assert process.stdout is not None
    while len(addresses) < services:
        line = process.stdout.readline()
        if not line:
            _, errors = process.communicate()
            raise AssertionError(f"mqstore run ended with {process.wait()}: {errors}")
        banner += line
        addresses.update(_ADDRESS.findall(line))
    writer_url, query_url = addresses["store-writer"], addresses["query"]
    return Run(process, writer_url, query_url, banner, addresses.get("transactions", ""))


@dataclass
class Process:
    """One service's process by itself."""

    process: subprocess.Popen[str] | ForkedProcess
    url: str

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def ended(self) -> tuple[int, str]:
        _, errors = self.process.communicate(timeout=END_TIMEOUT_S)
        return self.process.wait(), errors


def writer(store: Path, **settings: Any) -> contextlib.AbstractContextManager[Process]:
    """A ready store-writer; killed at the end when it still lives."""
    return service(Target.WRITER, ["-m", "mqstore.writer"], store, **settings)


def query(store: Path, **settings: Any) -> contextlib.AbstractContextManager[Process]:
    return service(Target.QUERY, ["-m", "mqstore.query"], store, **settings)


@dataclass
class ServicePair:
    """A store-writer and a query service of one store, without ``mqstore run``."""

    writer: Process
    query: Process

    @property
    def writer_url(self) -> str:
        return self.writer.url

    @property
    def query_url(self) -> str:
        return self.query.url

    def client(self, *, token: str | None = None) -> Client:
        return Client(self.writer_url, self.query_url, token=token)

    def stop(self) -> None:
        """End both as an operator does, and wait for their end."""
        for each in (self.query, self.writer):
            each.process.terminate()
        for each in (self.query, self.writer):
            assert each.ended()[0] == 0


@contextlib.contextmanager
def service_pair(store: Path, **settings: Any) -> Iterator[ServicePair]:
    """Both services of a store with the same settings, ready; killed at the end."""
    with writer(store, **settings) as writes, query(store, **settings) as reads:
        yield ServicePair(writes, reads)


@contextlib.contextmanager
def service(
    target: Target,
    arguments: list[str],
    store: Path,
    *,
    status: str | None = "ready",
    ca: Path | None = None,
    port: int = 0,
    python_path: str | None = None,
    **settings: Any,
) -> Iterator[Process]:
    """A service's process, once its health says ``status``; killed at the end. None: at once.

    A module (``-m``) runs in a fork of a process that has imported it.
    ``ca``: who signed the certificate of a service with TLS; ``port``: any one by default;
    ``python_path``: where the modules of another release are.
    """
    settings.setdefault("mapped_file_size_commit_log", SEGMENT_SIZE)
    with bind("127.0.0.1", port) as listener:
        scheme = "http" if ca is None else "https"
        url = f"{scheme}://127.0.0.1:{listener.getsockname()[1]}"
        given = environment(**{"store": store, "listen_fd": listener.fileno(), **settings})
        process: subprocess.Popen[str] | ForkedProcess
        if arguments[0] == "-m" and python_path is None:
            process = start_forked(*arguments[1:], environment=given, listener=listener)
        else:
            process = subprocess.Popen(
                [sys.executable, *arguments],
                env=given if python_path is None else given | {"PYTHONPATH": python_path},
                pass_fds=(listener.fileno(),),
                stderr=subprocess.PIPE,
                text=True,
            )
    found = Process(process, url)
    try:
        with Client(url, url, tls=None if ca is None else make_tls_context(ca)) as client:
            if status is not None:
                with _errors_shown(process):
                    await_ready(client, target, status)
        yield found
    except Exception as failure:
        if process.poll() is not None:
            text = f"{target} had ended with {process.wait()}: {process.communicate()[1]}"
            failure.add_note(text)
        raise
    finally:
        process.kill()
        process.communicate()


@contextlib.contextmanager
def _errors_shown(process: subprocess.Popen[str] | ForkedProcess) -> Iterator[None]:
    """Add to a failure what the process wrote to stderr, and where its threads are."""
    try:
        yield
    except AssertionError as failure:
        process.send_signal(signal.SIGABRT)  # by which faulthandler writes all stacks
        _, errors = process.communicate()
        raise AssertionError(f"{failure}; exit code {process.wait()}; stderr:\n{errors}") from None


def await_ready(client: Client, target: Target, wanted: str = "ready") -> None:
    """Poll the health endpoint until it reports this state, for a limited time."""
    deadline = time.monotonic() + START_TIMEOUT_S
    status, pause = "", 0.004
    while status != wanted:
        assert time.monotonic() < deadline, f"{target} is not {wanted}: {status}"
        try:
            status = client.health(target).status
        except ClientError as error:
            status = str(error)
        if status != wanted:  # each request costs the service and us 3 ms of CPU
            time.sleep(pause)
            pause = min(2 * pause, 0.1)
