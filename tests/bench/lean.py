"""The lean client: `lean.c`, one program for our HTTP and for RocketMQ's remoting protocol.

The program is compiled once into build/bench, by the compiler that builds the kernel. An exchange
is a request, or several, that a connection repeats; its parts are bytes, or values that the program
fills in. `exchanges.py` has the exchanges of both protocols.
"""

from __future__ import annotations

import contextlib
import enum
import fcntl
import hashlib
import importlib.util
import json
import os
import shutil
import struct
import subprocess
import sys
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.bench.failures import SideError

SOURCE: Final = Path(__file__).with_name("lean.c")
BUILD: Final = Path(__file__).parents[2] / "build" / "bench"
FLAGS: Final = ("-std=c11", "-O2", "-Wall", "-Wextra", "-Werror")
PATIENCE_S: Final = 90
"""Time after the end of a round in which the program must end."""

_PART: Final = struct.Struct(">cI")
_INDEX: Final = struct.Struct(">I")

Part = tuple[bytes, bytes]
"""A kind of lean.c's ``enum kind``, and its data."""


class Protocol(enum.Enum):
    """How requests and replies are framed."""

    HTTP = "http"
    REMOTING = "remoting"


class LeanError(SideError):
    """The client could not be built, or a connection or a reply failed."""


@dataclass(frozen=True)
class Exchange:
    """The request that a connection repeats, and its reply."""

    protocol: Protocol
    parts: tuple[Part, ...]
    messages: int
    """Messages of one exchange; 0: the records of the replies, or captured items, are counted."""
    wrap: int = 0
    """The captured offset at which reading starts at offset 0 again; 0: it does not."""


@dataclass(frozen=True)
class Limits:
    """The end of a round: by time, by exchanges of each connection, or by both."""

    seconds: float = 0
    exchanges: int = 0
    rate: float = 0
    """Exchanges a second that begin over all connections; 0: each after the reply to the last."""


@dataclass(frozen=True)
class Measurement:
    """One round: counts, seconds of time and of processors, and latencies of exchanges."""

    exchanges: int
    messages: int
    reply_bytes: int
    seconds: float
    client_s: float
    server_s: float
    p50_ms: float
    p99_ms: float
    p999_ms: float
    arrival_p50_ms: float
    """From the sending of a message to its receipt, of messages that say when they were sent."""
    arrival_p99_ms: float

    @property
    def server_us(self) -> float:
        """Microseconds of the servers' processor time per message."""
        return self.server_s / self.messages * 1e6

    @property
    def client_us(self) -> float:
        """Microseconds of the client's processor time per message."""
        return self.client_s / self.messages * 1e6


def literal(data: bytes) -> Part:
    """Bytes that are sent unchanged."""
    return b"L", data


def unique_key(index: int = 0) -> Part:
    """The 32-character unique key of a message of the exchange."""
    return b"K", _INDEX.pack(index)


def number(index: int = 0) -> Part:
    """The ten-digit number of a message of the exchange."""
    return b"N", _INDEX.pack(index)


def captured(index: int) -> Part:
    """A text captured from a reply; the text 0 is "0" before the first reply."""
    return b"V", bytes([index])


def captured_offset(index: int) -> Part:
    """The physical offset in a captured offset message id."""
    return b"X", bytes([index])


def capture(index: int, before: bytes) -> Part:
    """Capture the text after ``before`` in the reply to the last request, up to its end."""
    return b"G", bytes([index]) + before


def capture_texts(before: bytes) -> Part:
    """Capture, as the items, each text in quotes behind ``before`` in the reply."""
    return b"F", before


def capture_popped(start: bytes) -> Part:
    """Capture, as the items, a BatchAck of each queue in the reply to a POP. ``start`` is its JSON
    up to the run's id, which ends the group's name."""
    return b"P", start


RUN: Final[Part] = (b"I", b"")
NOW: Final[Part] = (b"U", b"")
LENGTH: Final[Part] = (b"C", b"")
ITEMS: Final[Part] = (b"W", b"")
OPAQUE: Final[Part] = (b"O", b"")
TIME: Final[Part] = (b"T", b"")
QUEUE: Final[Part] = (b"Q", b"")
HEADER_END: Final[Part] = (b"H", b"")
REQUEST_END: Final[Part] = (b"E", b"")


def run(
    exchange: Exchange,
    port: int,
    connections: int,
    limits: Limits,
    servers: Sequence[int] = (),
    run_id: str = "",
) -> Measurement:
    """One round against a port of the loopback; ``servers`` are the measured process ids.

    Raises LeanError with the program's own words when a connection or a reply fails.
    """
    found = _run(exchange, port, connections, limits, servers, run_id)
    if not found.messages:
        raise LeanError("the round exchanged no message")
    return found


def receive_once(exchange: Exchange, port: int, connections: int) -> None:
    """Let each connection receive once; most get nothing. Raises LeanError as ``run``."""
    _run(exchange, port, connections, Limits(exchanges=1), (), "")


def _run(
    exchange: Exchange,
    port: int,
    connections: int,
    limits: Limits,
    servers: Sequence[int],
    run_id: str,
) -> Measurement:
    arguments = [
        exchange.protocol.value,
        port,
        connections,
        limits.seconds,
        limits.exchanges,
        exchange.messages,
        exchange.wrap,
        limits.rate,
        run_id or new_run_id(),
        ",".join(map(str, servers)),
    ]
    try:
        done = subprocess.run(
            [str(build()), *map(str, arguments)],
            input=b"".join(_PART.pack(kind, len(data)) + data for kind, data in exchange.parts),
            capture_output=True,
            timeout=limits.seconds + PATIENCE_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise LeanError(f"the round did not end within {error.timeout:.0f} s") from error
    if done.returncode != 0:
        raise LeanError(done.stderr.decode(errors="replace").strip())
    return Measurement(*json.loads(done.stdout).values())


def new_run_id() -> str:
    """The id of a run: 16 hexadecimal digits."""
    return uuid.uuid4().hex[:16].upper()


def build() -> Path:
    """The compiled program; compiles it unless this source was compiled before."""
    digest = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16]
    program = BUILD / f"lean-{digest}"
    if program.exists():
        return program
    BUILD.mkdir(parents=True, exist_ok=True)
    with _locked(BUILD / "lean.lock"):
        if not program.exists():
            _compile(program)
    return program


def _compile(program: Path) -> None:
    unfinished = program.with_suffix(".new")
    command = [*_compiler(), *FLAGS, "-o", str(unfinished), str(SOURCE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise LeanError(f"{command[0]} could not compile {SOURCE.name}: {done.stderr}")
    unfinished.rename(program)


def _compiler() -> list[str]:
    """The compiler that libs/storage/setup.py would use."""
    for name in ("cc", "gcc", "clang"):
        if shutil.which(name):
            return [name]
    if importlib.util.find_spec("ziglang") is None:
        raise LeanError("no C compiler found: install gcc or clang, or `pip install ziglang`")
    return [sys.executable, "-m", "ziglang", "cc"]


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a lock file, so that concurrent builds wait for the first."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
