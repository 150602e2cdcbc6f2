"""Real RocketMQ as the referee: builds and runs the Java program in `referee/`.

One JVM per version serves all commands of a test session (a store costs tenths of a second then);
scripts that end in a halt get a JVM of their own. What RocketMQ logs goes to
`build/referee/VERSION/logs/`; REFEREE_LOG=INFO adds its whole log.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
import threading
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from tests.compat.scripts import Script

SOURCES = Path(__file__).parent / "referee"
BUILD = Path(__file__).parents[2] / "build" / "referee"
# Each version with the source folder that fits its API.
VERSIONS = {"4.9.7": "v4", "5.4.0": "v5"}
COMMAND_TIMEOUT_S = 180
BUILD_TIMEOUT_S = 540
# 4.9.7 unmaps files by ways that Java 17 closes; the disk ratios would refuse writes on a full
# machine.
JVM_ACCESS_FLAGS = [
    "-Dfile.encoding=UTF-8",
    "-Drocketmq.broker.diskSpaceWarningLevelRatio=0.99",
    "-Drocketmq.broker.diskSpaceCleanForciblyRatio=0.98",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
]
# The serial collector and the first compiler start fastest.
FAST_START = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
# Standard output carries answers only.
JVM_FLAGS = [
    *("-Xmx512m", "-Xlog:disable", "-Xlog:all=warning:stderr"),
    *(*FAST_START, *JVM_ACCESS_FLAGS),
]
# A broker, a producer and a consumer: most of the classes that the commands load.
ALL_PARTS = {
    "config": {"mappedFileSizeCommitLog": 1 << 20},
    "group": "g",
    "topic": "t",
    "sends": [{"body": "body", "keys": "k"}],
    "fails": {},
    "tries": 1,
    "consumed": 1,
    "deadLetters": 0,
}

Line = dict[str, Any]


class RefereeError(Exception):
    """The referee could not be built, or answered with an error."""


def missing() -> str | None:
    """Why the referee cannot run here, or None when it can."""
    for tool in ("java", "mvn"):
        if shutil.which(tool) is None:
            return f"no {tool} on the PATH: tests against real RocketMQ need Java 11+ and Maven"
    return None


class Referee:
    """The real DefaultMessageStore of one RocketMQ version."""

    def __init__(self, version: str) -> None:
        self.version = version
        self.out = BUILD / version
        self._server: _Server | None = None

    @property
    def format(self) -> str:
        """The format of the stores that it writes, as mqstore names it."""
        return "4.9" if self.version.startswith("4.") else "5.x"

    @property
    def process_id(self) -> int | None:
        """The JVM that answers commands, once there is one."""
        return None if self._server is None else self._server.process_id

    def write(self, script: Script, directory: Path) -> list[Line]:
        """Make a store in `directory`; the answers to the script's puts, in order."""
        return self._run_script("write", script, directory)

    def append(self, script: Script, directory: Path) -> list[Line]:
        """Open the store in `directory` as a broker does and run a script on it."""
        return self._run_script("append", script, directory)

    def dump(
        self,
        directory: Path,
        config: Mapping[str, Any],
        *,
        queries: bool = True,
        timeout_s: float = COMMAND_TIMEOUT_S,
    ) -> list[Line]:
        """Recover the store, which changes it (hand in a copy), and return all that is seen.

        RefereeError when RocketMQ refuses the store, or waits for ever for what is not there.
        """
        command = {"cmd": "dump", "dir": str(directory), "config": config, "queries": queries}
        return self._served(command, timeout_s)

    def rebuild(self, directory: Path, config: Mapping[str, Any]) -> None:
        """Replace queues and index of the store by RocketMQ's own build from the log."""
        self._served({"cmd": "rebuild", "dir": str(directory), "config": config})

    def clean(self, directory: Path, config: Mapping[str, Any], *, rounds: int) -> Line:
        """Run rounds of RocketMQ's cleaner by hand and return the log's bounds."""
        command = {"cmd": "clean", "dir": str(directory), "config": config, "rounds": rounds}
        return self._served(command)[0]

    def times(
        self, directory: Path, config: Mapping[str, Any], topic: str, times_ms: Iterable[int]
    ) -> list[int]:
        """Offsets in a topic's queue 0 at which a consumer begins that seeks each of the times."""
        requests = [{"topic": topic, "q": 0, "ms": time_ms} for time_ms in times_ms]
        command = {"cmd": "times", "dir": str(directory), "config": config, "requests": requests}
        return [line["offset"] for line in self._served(command)]

    def evaluate(self, requests: list[Line]) -> list[list[str]]:
        """Evaluate filter expressions with each of their ``properties``: ``true``, ``false``,
        ``null`` or ``throws``; only ``refused`` for an expression that RocketMQ rejects."""
        lines = self._served({"cmd": "evaluate", "requests": requests})
        return [line["answers"] for line in lines]

    def recode(self, file: str, text: str) -> str:
        """A config file's text, read and written again by RocketMQ's own manager of it."""
        return str(self._served({"cmd": "recode", "file": file, "text": text})[0]["text"])

    def subscribe(self, requests: list[Line]) -> str:
        """``consumerFilter.json`` of a broker that got these registrations; its bloom filter
        expects 64 of them."""
        return str(self._served({"cmd": "subscribe", "requests": requests})[0]["text"])

    def pull(self, directory: Path, config: Mapping[str, Any], requests: list[Line]) -> list[Line]:
        """``offsets`` that a group gets of a queue by a ``type`` of ``expression``, and how many
        messages it ``looked`` at in the log; recovers the store, as ``dump`` does."""
        command = {"cmd": "pull", "dir": str(directory), "config": config, "requests": requests}
        return self._served(command)

    def bloom(self, requests: list[Line]) -> list[Line]:
        """``bits`` of a bloom filter with ``f`` and ``n``, and ``positions`` of its ``texts``."""
        return self._served({"cmd": "bloom", "requests": requests})

    def properties(self) -> set[tuple[str, str]]:
        """Name and type of each setter by which a broker and a name server take a setting."""
        found = self._served({"cmd": "properties"})
        return {(line["name"], line["type"]) for line in found}

    def judge(self, names: list[str]) -> list[Line]:
        """Whether each name may be that of a ``topic`` and, in 5.x, of a ``group``, and whether the
        topic ``isSystem`` and ``isRefused`` to producers."""
        return self._served({"cmd": "judge", "names": names})

    def parse(self, files: list[bytes]) -> list[dict[str, str] | None]:
        """The properties that Java reads in each file, or None for a file that it refuses."""
        return [line.get("entries") for line in self._of_files("parse", files)]

    def configure(self, files: list[bytes]) -> list[dict[str, str]]:
        """All that a broker has after it read each settings file, as it saves it."""
        return [line["entries"] for line in self._of_files("configure", files)]

    def _of_files(self, command: str, files: list[bytes]) -> list[Line]:
        texts = [content.decode("iso-8859-1") for content in files]
        return self._served({"cmd": command, "files": texts})

    def transact(self, directory: Path, request: Mapping[str, Any]) -> list[Line]:
        """A whole broker opens the store, a TransactionMQProducer sends, is checked and answers, as
        Transactions.java says: what was ``sent``, and each ``check``."""
        return self._once("transact", str(directory), json.dumps(request))

    def consume(self, directory: Path, request: Mapping[str, Any]) -> list[Line]:
        """A whole broker opens the store, a producer sends, and a group's DefaultMQPushConsumer
        sends some of it back, as Consumers.java says: what was ``sent``, each time that one was
        ``consumed``."""
        return self._once("consume", str(directory), json.dumps(request))

    def permissions(self, directory: Path, request: Mapping[str, Any]) -> list[Line]:
        """A whole broker opens the store, and groups pull, as Permissions.java says: the ``code``
        of each reply."""
        return self._once("permissions", str(directory), json.dumps(request))

    def starts(
        self, directory: Path, config: Mapping[str, Any], *, timeout_s: float = COMMAND_TIMEOUT_S
    ) -> int | None:
        """A whole broker opens the store, which changes it; the end of its log, or None where it
        does not start, or not within the time: with a segment missing it may wait for ever."""
        request = json.dumps({"config": config})
        try:
            found = self._once("starts", str(directory), request, timeout_s=timeout_s)
        except (RefereeError, subprocess.TimeoutExpired):
            return None
        return int(found[0]["end"])

    def time(self, directory: Path, request: Mapping[str, Any]) -> int:
        """A whole broker of 5.x opens the store, and delivers messages that name a time, as
        Timers.java says; returns how many messages the topic has then."""
        return int(self._once("time", str(directory), json.dumps(request))[0]["count"])

    @contextlib.contextmanager
    def slave(self, directory: Path, config: Mapping[str, Any]) -> Iterator[SlaveBroker]:
        """A whole broker that copies its master, as Slave.java says; killed at the end if it still
        lives."""
        with self._broker("slave", directory, config) as (process, log_path):
            yield SlaveBroker(process, log_path)

    @contextlib.contextmanager
    def master(self, directory: Path, config: Mapping[str, Any]) -> Iterator[MasterBroker]:
        """A whole broker whose log is copied, as Master.java says; killed at the end if it still
        lives."""
        with self._broker("master", directory, config) as (process, log_path):
            yield MasterBroker(process, log_path)

    @contextlib.contextmanager
    def states(self, directory: Path, config: Mapping[str, Any]) -> Iterator[StatesBroker]:
        """A whole broker that is brought into states, as States.java says; killed at the end if it
        still lives."""
        with self._broker("states", directory, config) as (process, log_path):
            yield StatesBroker(process, log_path)

    @contextlib.contextmanager
    def _broker(
        self, command: str, directory: Path, config: Mapping[str, Any]
    ) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
        self.build()
        logs = self.out / "logs"
        logs.mkdir(exist_ok=True)
        log_path = logs / f"{command}-{os.getpid()}-{directory.name}.log"
        request = json.dumps({"config": config})
        with tempfile.TemporaryDirectory(prefix="referee-") as scratch, log_path.open("wb") as log:
            process = subprocess.Popen(
                self._java(Path(scratch), command, str(directory), request),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
            )
            with process:
                try:
                    yield process, log_path
                finally:
                    process.kill()
        log_path.unlink(missing_ok=True)  # another broker of the directory had it too

    def mqadmin(self, *words: str) -> str:
        """Run RocketMQ's `mqadmin`; returns what it prints. RefereeError when it fails."""
        self.build()
        with tempfile.TemporaryDirectory(prefix="referee-") as scratch:
            *command, _ = self._java(Path(scratch))
            command += ["org.apache.rocketmq.tools.command.MQAdminStartup", *words]
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=COMMAND_TIMEOUT_S,
                check=False,
            )
        text = done.stdout.decode(errors="replace")
        if done.returncode != 0:
            raise RefereeError(text + done.stderr.decode(errors="replace")[-4000:])
        return text

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    def build(self) -> None:
        """Compile the program unless this very source was compiled before."""
        stamp = self.out / "built-from"
        digest = _digest_of_sources()
        self.out.mkdir(parents=True, exist_ok=True)
        with _locked(BUILD / f"{self.version}.lock"):
            if stamp.exists() and stamp.read_text() == digest and self._jars_exist():
                return
            # Offline first: Maven needs no network once it has the jars. A download may break off;
            # the next attempt goes on from there.
            if not any(self._maven(*flags) for flags in (("--offline",), (), ())):
                raise RefereeError(f"Maven could not build the referee, see {self.out}/maven.log")
            self._archive_classes()
            stamp.write_text(digest)

    def _maven(self, *flags: str) -> bool:
        command = ["mvn", "--batch-mode", *flags, "compile", "dependency:build-classpath"]
        command += [f"-Drocketmq.version={self.version}", f"-Dreferee.api={VERSIONS[self.version]}"]
        command += [f"-Dreferee.out={self.out}", f"-Dmdep.outputFile={self._classpath_file}"]
        with (self.out / "maven.log").open("wb") as log:
            done = subprocess.run(
                command,
                cwd=SOURCES,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={"MAVEN_OPTS": " ".join(FAST_START), **os.environ},
                timeout=BUILD_TIMEOUT_S,
                check=False,
            )
        return done.returncode == 0

    def _archive_classes(self) -> None:
        """Make a jar of our classes, and an archive of the classes that a JVM loads: the next ones
        map it, and start in half of the processor time. A JVM that makes none (Java 11) is only
        slower."""
        with zipfile.ZipFile(self._jar, "w") as jar:
            for path in sorted((self.out / "classes").rglob("*")):
                jar.write(path, path.relative_to(self.out / "classes"))
        self._archive.unlink(missing_ok=True)
        with tempfile.TemporaryDirectory(prefix="referee-") as scratch:
            java, *arguments = self._java(
                Path(scratch), "consume", f"{scratch}/store", json.dumps(ALL_PARTS)
            )
            subprocess.run(
                [java, f"-XX:ArchiveClassesAtExit={self._archive}", *arguments],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=COMMAND_TIMEOUT_S,
                check=False,
            )

    @property
    def _classpath_file(self) -> Path:
        return self.out / "classpath.txt"

    @property
    def _jar(self) -> Path:
        return self.out / "referee.jar"

    @property
    def _archive(self) -> Path:
        return self.out / "classes.jsa"

    def _jars_exist(self) -> bool:
        if not self._classpath_file.exists() or not self._jar.exists():
            return False
        jars = self._classpath_file.read_text().strip().split(os.pathsep)
        return all(Path(jar).exists() for jar in jars)

    @property
    def class_path(self) -> str:
        """The class path of a JVM: RocketMQ and this program; valid after ``build``."""
        return f"{self._jar}{os.pathsep}{self._classpath_file.read_text().strip()}"

    def _java(self, scratch: Path, *arguments: str) -> list[str]:
        classes = self.out / "classes"
        archive = [f"-XX:SharedArchiveFile={self._archive}"] if self._archive.exists() else []
        return [
            "java",
            *archive,
            *JVM_FLAGS,
            f"-Duser.home={scratch}",
            f"-Djava.io.tmpdir={scratch}",  # RocksDB unpacks itself there
            f"-XX:ErrorFile={scratch}/crash.log",
            f"-Drmq.logback.configurationFile={classes / 'logback.xml'}",
            f"-Dreferee.log={os.environ.get('REFEREE_LOG', 'WARN')}",
            "-cp",
            self.class_path,
            "referee.Main",
            *arguments,
        ]

    def _run_script(self, command: str, script: Script, directory: Path) -> list[Line]:
        file = directory.with_name(directory.name + ".script.jsonl")
        file.write_text(script.to_json_lines(), encoding="utf-8")
        if script.halts:
            return self._once(command, str(directory), str(file))
        return self._served({"cmd": command, "dir": str(directory), "script": str(file)})

    def _once(self, *arguments: str, timeout_s: float = COMMAND_TIMEOUT_S) -> list[Line]:
        """Run one command in a JVM of its own, which a halting script ends."""
        self.build()
        with tempfile.TemporaryDirectory(prefix="referee-") as scratch:
            done = subprocess.run(
                self._java(Path(scratch), *arguments),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=timeout_s,
                check=False,
            )
        lines = list(_whole_lines(done.stdout))
        if done.returncode != 0:
            why = lines[-1].get("error") if lines else None
            raise RefereeError(f"{why}\n{done.stderr.decode(errors='replace')[-4000:]}")
        return [line for line in lines if line["t"] != "end"]

    def _served(
        self, command: Mapping[str, Any], timeout_s: float = COMMAND_TIMEOUT_S
    ) -> list[Line]:
        if self._server is None:
            self.build()
            self._server = _Server(self)
        try:
            return self._server.request(command, timeout_s)
        except RefereeError:
            self.close()  # the next command gets a fresh JVM
            raise


class _Broker:
    """A broker that takes commands on stdin, one a line, and answers each with a line."""

    def __init__(self, process: subprocess.Popen[bytes], log_path: Path) -> None:
        self._process = process
        self._log_path = log_path

    def kill(self) -> None:
        """End it as kill -9 does."""
        self._process.kill()
        self._process.wait(COMMAND_TIMEOUT_S)

    def end(self) -> None:
        """Close its store."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        if self._process.wait(COMMAND_TIMEOUT_S) != 0:
            assert self._process.stdout is not None
            raise RefereeError(f"{self._process.stdout.read().decode()}\n{self._log()}")

    def _request(self, command: str) -> Line:
        requests = self._process.stdin
        assert requests is not None
        with contextlib.suppress(BrokenPipeError):
            requests.write(command.encode() + b"\n")
            requests.flush()
        return self._answer()

    def _answer(self) -> Line:
        assert self._process.stdout is not None
        line: Line = json.loads(self._process.stdout.readline() or b"{}")
        if line.get("t") in (None, "end"):
            raise RefereeError(f"{line.get('error')}\n{self._log()}")
        return line

    def _log(self) -> str:
        return self._log_path.read_text(errors="replace")[-4000:]


class SlaveBroker(_Broker):
    """A broker that copies its master."""

    def reach(self, offset: int) -> int:
        """Wait until the log ends at an offset or later, all in queues; returns the log's end."""
        return int(self._request(str(offset))["offset"])

    def copy_tables(self) -> Line:
        """Have it copy the master's tables; the JSON of its ``topics``, ``groups``, ``offsets``."""
        return self._request("tables")


class MasterBroker(_Broker):
    """A broker whose log is copied."""

    def __init__(self, process: subprocess.Popen[bytes], log_path: Path) -> None:
        super().__init__(process, log_path)
        self.address = str(self._answer()["address"])
        """``host:port`` of its remoting server."""

    def send(self, first: int, count: int) -> int:
        """Send messages numbered from ``first``; returns the log's end."""
        return int(self._request(f"{first} {count}")["offset"])

    def tables(self) -> Line:
        """Commit an offset; the JSON of its ``topics``, ``groups`` and ``offsets``."""
        return self._request("tables")


class StatesBroker(_Broker):
    """A broker that is brought into states, and its clients."""

    def __init__(self, process: subprocess.Popen[bytes], log_path: Path) -> None:
        super().__init__(process, log_path)
        started = self._answer()
        self.address = str(started["address"])
        """``host:port`` of its remoting server."""
        self.name_server = str(started["nameServer"])

    def do(self, command: str, /, **how: Any) -> list[str]:
        """Run a command; the bodies that were consumed, if it consumes."""
        return list(self._request(json.dumps({"do": command, **how})).get("consumed", ()))


class _Server:
    """A JVM that answers commands until it is closed."""

    def __init__(self, referee: Referee) -> None:
        self._scratch = tempfile.TemporaryDirectory(prefix="referee-")
        logs = referee.out / "logs"
        logs.mkdir(exist_ok=True)
        self._log_path = logs / f"serve-{os.getpid()}.log"
        self._log = self._log_path.open("wb")
        self._failed = False
        self._process = subprocess.Popen(
            referee._java(Path(self._scratch.name), "serve"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
        )

    @property
    def process_id(self) -> int:
        """The JVM."""
        return self._process.pid

    def request(self, command: Mapping[str, Any], timeout_s: float) -> list[Line]:
        requests, answers = self._pipes()
        watchdog = threading.Timer(timeout_s, self._process.kill)
        watchdog.start()
        try:
            with contextlib.suppress(BrokenPipeError):
                requests.write(json.dumps(command).encode() + b"\n")
                requests.flush()
            return self._answer(command, answers)
        finally:
            watchdog.cancel()
            watchdog.join()

    def _answer(self, command: Mapping[str, Any], answers: IO[bytes]) -> list[Line]:
        lines: list[Line] = []
        for raw in answers:
            try:
                line: Line = json.loads(raw)
            except ValueError:  # a JVM that crashes prints why, and ends
                text = (raw + answers.read(4000)).decode(errors="replace")
                raise RefereeError(self._report(command, text)) from None
            if line["t"] != "end":
                lines.append(line)
            elif line["ok"]:
                return lines
            else:
                raise RefereeError(self._report(command, line["error"]))
        raise RefereeError(self._report(command, "the JVM ended without an answer"))

    def _report(self, command: Mapping[str, Any], error: str) -> str:
        self._failed = True
        log = self._log_path.read_text(errors="replace")[-4000:]
        return (
            f"{command['cmd']} {command.get('dir', '')}: {error}\nlast of {self._log_path}:\n{log}"
        )

    def _pipes(self) -> tuple[IO[bytes], IO[bytes]]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        return self._process.stdin, self._process.stdout

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
        self._log.close()
        if self._process.returncode == 0 and not self._failed:
            self._log_path.unlink()
        self._scratch.cleanup()


def _whole_lines(output: bytes) -> Iterator[Line]:
    """JSON lines; the last may have been cut by a halt and is then left out."""
    for raw in output.splitlines(keepends=True):
        if raw.endswith(b"\n"):
            yield json.loads(raw)


def _digest_of_sources() -> str:
    digest = hashlib.sha256()
    for path in sorted(SOURCES.rglob("*")):
        if path.is_file():
            digest.update(str(path.relative_to(SOURCES)).encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Held by one process at a time, so that concurrent builds wait for the first."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
