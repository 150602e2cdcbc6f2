"""Runs kubectl with the cluster, user and namespace that the caller of the plugin chose.

The plugin reaches the cluster through this module only, so it has the permissions of the caller.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any, Final

EXIT_REFUSED: Final = 2
EXIT_UNREACHABLE: Final = 3
_FORWARDED: Final = re.compile(r"^Forwarding from 127\.0\.0\.1:(\d+) -> (\d+)")
_NO_ANSWER: Final = re.compile(
    r"unable to connect to the server|connection to the server .* was refused|i/o timeout"
    r"|no such host|context deadline exceeded",
    re.IGNORECASE,
)
_COMMAND_ENDED: Final = "command terminated with"
_LINES_SHOWN: Final = 3


class KubeError(Exception):
    """Ends a command of the plugin; ``exit_code`` is 2 if refused, 3 if the cluster is silent."""

    def __init__(self, why: str, exit_code: int = EXIT_REFUSED) -> None:
        super().__init__(why)
        self.exit_code = exit_code


@dataclass(frozen=True, slots=True)
class Kubectl:
    """Runs kubectl; every method raises KubeError with what kubectl said."""

    options: tuple[str, ...] = ()
    """``--context``, ``--namespace`` and the like, before every command."""

    def run(self, *arguments: str, given: str | None = None) -> str:
        """Run kubectl and return its standard output; ``given`` is its standard input."""
        ran = subprocess.run(  # noqa: S603  # the caller's own kubectl
            self.command(*arguments), input=given, capture_output=True, text=True, check=False
        )
        if ran.returncode:
            raise _failed(ran.stderr)
        return ran.stdout

    def json(self, *arguments: str) -> Any:
        """Run kubectl with JSON output and return the parsed object."""
        return json.loads(self.run(*arguments, "-o", "json"))

    def items(self, kind: str, selector: str) -> list[Any]:
        """The objects of a kind whose labels match ``selector``."""
        return list(self.json("get", kind, "-l", selector)["items"])

    def print_output(self, *arguments: str) -> None:
        """Run kubectl with the standard output of this process."""
        ran = subprocess.run(  # noqa: S603
            self.command(*arguments), stderr=subprocess.PIPE, text=True, check=False
        )
        if ran.returncode:
            raise _failed(ran.stderr)

    @contextmanager
    def streamed_out(self, *arguments: str) -> Iterator[IO[bytes]]:
        """Run kubectl and yield its standard output as a stream."""
        with subprocess.Popen(  # noqa: S603
            self.command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            assert process.stdout is not None
            try:
                yield process.stdout
            except BaseException:
                process.kill()  # kubectl may wait for the reader, which has stopped
                raise
            _check_exit(process)

    @contextmanager
    def streamed_in(self, *arguments: str) -> Iterator[IO[bytes]]:
        """Run kubectl and yield its standard input, which the end of the context closes."""
        with subprocess.Popen(  # noqa: S603
            self.command(*arguments),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        ) as process:
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError):  # _check_exit raises with kubectl's reason
                yield process.stdin
                process.stdin.close()
            _check_exit(process)

    @contextmanager
    def forwarded(self, pod: str, *ports: int) -> Iterator[dict[int, int]]:
        """Forward ports of a pod for the context; yields the port at 127.0.0.1 of each."""
        wanted = (f":{port}" for port in ports)
        command = self.command("port-forward", "--address", "127.0.0.1", f"pod/{pod}", *wanted)
        with subprocess.Popen(  # noqa: S603
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            try:
                yield _local_ports(process, len(ports))
            finally:
                process.terminate()

    def command(self, *arguments: str) -> list[str]:
        """The command line of kubectl with the options and ``arguments``."""
        kubectl = shutil.which("kubectl")
        if kubectl is None:
            raise KubeError("no kubectl on the PATH; install it, this is a plugin of it")
        return [kubectl, *self.options, *arguments]


def _local_ports(process: subprocess.Popen[str], count: int) -> dict[int, int]:
    assert process.stdout is not None
    assert process.stderr is not None
    found: dict[int, int] = {}
    while len(found) < count:
        line = process.stdout.readline()
        if not line:
            raise _failed(process.stderr.read())
        if said := _FORWARDED.match(line):
            found[int(said[2])] = int(said[1])
    return found


def _check_exit(process: subprocess.Popen[bytes]) -> None:
    assert process.stderr is not None
    said = process.stderr.read().decode("utf-8", "replace")
    if process.wait():
        raise _failed(said)


def _failed(said: str) -> KubeError:
    """The error for kubectl's stderr: its last line, or the first lines of a command in a pod."""
    lines = [line.strip() for line in said.splitlines() if line.strip()] or ["it said nothing"]
    why = lines[-1]
    if len(lines) > 1 and why.startswith(_COMMAND_ENDED):
        why = "; ".join(lines[:-1][:_LINES_SHOWN])
    exit_code = EXIT_UNREACHABLE if _NO_ANSWER.search(said) else EXIT_REFUSED
    return KubeError(f"kubectl: {why.removeprefix('error: ').removeprefix('Error: ')}", exit_code)
