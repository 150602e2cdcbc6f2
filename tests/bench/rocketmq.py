"""The peer: real RocketMQ's DefaultMessageStore in one long-lived JVM (Java source in `peer/`).

Its jars are those of the referee in tests/compat; its options are those of RocketMQ's own start
script (G1, a touched heap), with a heap that fits a small machine. It times itself.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from tests.bench.failures import SideError
from tests.compat.referee import JVM_ACCESS_FLAGS, Referee
from tests.compat.referee import missing as referee_missing
from tests.free_ports import free_port

VERSION = "4.9.7"
NAME = f"RocketMQ {VERSION}"
POP_VERSION = "5.4.0"
POP_NAME = f"RocketMQ {POP_VERSION}"
"""The peer of rows of shared groups: version 4 has no POP consumer."""
SOURCES = Path(__file__).parent / "peer"
PROGRAMS = {VERSION: "*.java", POP_VERSION: "Broker.java"}
"""The sources that are compiled against each version."""
ANSWER_TIMEOUT_S = 600
SEGMENT_DEFAULT = 1 << 30
"""RocketMQ's mappedFileSizeCommitLog."""
HEAP = ["-Xms2g", "-Xmx2g", "-XX:+UseG1GC", "-XX:+AlwaysPreTouch"]


class PeerError(SideError):
    """The peer could not be built, or answered with an error."""


def missing() -> str | None:
    """Why the peer cannot run here, or None when it can."""
    if shutil.which("javac") is None:
        return "no javac on the PATH: the peer needs a JDK 11+ and Maven"
    return referee_missing()


class Programs:
    """The Java programs beside one version of RocketMQ."""

    def __init__(self, version: str) -> None:
        """Builds what is not built. Raises PeerError."""
        referee = Referee(version)
        referee.build()
        self._sources = sorted(SOURCES.glob(PROGRAMS[version]))
        self._out = referee.out / "peer"
        self._out.mkdir(exist_ok=True)
        self._class_path = f"{self._out / 'classes'}{os.pathsep}{referee.class_path}"
        self._compile(referee.class_path)
        self._scratch = tempfile.TemporaryDirectory(prefix="bench-peer-")
        self.log_path = self._out / "peer.log"
        self._log = self.log_path.open("wb")

    def start(self, *program: str) -> subprocess.Popen[bytes]:
        """Start a program in a JVM of its own."""
        return subprocess.Popen(
            self._java(*program),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
        )

    @contextlib.contextmanager
    def broker(
        self,
        directory: Path,
        flush: str,
        *,
        segment: int = SEGMENT_DEFAULT,
        names: int = 0,
        role: str = "ASYNC_MASTER",
        ha: int = 0,
    ) -> Iterator[tuple[int, int]]:
        """A whole broker over a directory, in a JVM of its own; its port and its process id.

        ``names`` is the port of a name server that leads to it; 0: there is none. ``ha`` is the
        port on which a master sends its log to a slave. Raises PeerError.
        """
        port = free_port()
        given = directory, port, flush, segment, names, role, ha
        process = self.start("peer.Broker", *map(str, given))
        try:
            assert process.stdout is not None
            if process.stdout.readline() != b"ready\n":
                raise PeerError(f"the broker does not start; see {self.log_path}")
            yield port, process.pid
        finally:
            process.kill()
            process.communicate()

    def close(self) -> None:
        """Remove what the programs left."""
        self._log.close()
        self._scratch.cleanup()

    def _compile(self, class_path: str) -> None:
        """Compile the peer unless this very source was compiled before."""
        digest = hashlib.sha256(b"".join(map(Path.read_bytes, self._sources))).hexdigest()
        stamp = self._out / "built-from"
        if stamp.exists() and stamp.read_text() == digest:
            return
        command = ["javac", "-Xlint:all", "--release", "11", "-d", str(self._out / "classes")]
        command += ["-cp", class_path, *map(str, self._sources)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise PeerError(f"javac could not build the peer: {done.stderr}")
        stamp.write_text(digest)

    def _java(self, *program: str) -> list[str]:
        return [
            "java",
            *HEAP,
            *JVM_ACCESS_FLAGS,
            f"-Duser.home={self._scratch.name}",
            f"-Djava.io.tmpdir={self._scratch.name}",
            "-Drmq.logback.configurationFile=logback.xml",
            "-cp",
            self._class_path,
            *program,
        ]


class Peer(Programs):
    """A JVM that answers requests until it is closed. One request at a time."""

    def __init__(self) -> None:
        """Builds what is not built. Raises PeerError."""
        super().__init__(VERSION)
        self._process = self.start("peer.Peer")
        self._pop: Programs | None = None

    @property
    def process_id(self) -> int:
        return self._process.pid

    def request(self, verb: str, **arguments: object) -> dict[str, float]:
        """Run one measurement; its figures. Raises PeerError."""
        requests, answers = self._pipes()
        fields = [verb, *(f"{name}={value}" for name, value in arguments.items())]
        watchdog = threading.Timer(ANSWER_TIMEOUT_S, self._process.kill)
        watchdog.start()
        try:
            requests.write("\t".join(fields).encode() + b"\n")
            requests.flush()
            answer = answers.readline().decode().rstrip("\n").split("\t")
        except BrokenPipeError:
            answer = [""]
        finally:
            watchdog.cancel()
        if answer[0] != "ok":
            why = answer[1] if len(answer) > 1 else "the JVM ended without an answer"
            raise PeerError(f"{verb}: {why}; see {self.log_path}")
        return {name: float(value) for name, value in (pair.split("=") for pair in answer[1:])}

    @property
    def pop(self) -> Programs:
        """The programs of the version that has a POP consumer. Raises PeerError."""
        if self._pop is None:
            self._pop = Programs(POP_VERSION)
        return self._pop

    def close(self) -> None:
        requests, answers = self._pipes()
        with contextlib.suppress(BrokenPipeError):
            requests.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        answers.close()
        if self._pop is not None:
            self._pop.close()
        super().close()

    def _pipes(self) -> tuple[IO[bytes], IO[bytes]]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        return self._process.stdin, self._process.stdout
