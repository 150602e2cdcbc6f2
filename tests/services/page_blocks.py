"""The blocks of commands in docs/how-to, and a reader who runs them against services.

Only addresses and placeholders change.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.forked_processes import run_mqstore
from tests.forked_processes import start as start_forked
from tests.services.service_processes import REPOSITORY, Run

HOW_TO: Final = REPOSITORY / "docs" / "how-to"
FENCE: Final = re.compile(r"^ *```(\w*)\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
SHELL: Final = re.compile(r"[|&;<>$*]")
"""Characters that need a shell. A command without them runs in a fork of a process that has
imported it."""
PATIENCE_S: Final = 60.0
MQSTORE: Final = str(Path(sys.executable).with_name("mqstore"))


def blocks_of(page: str) -> list[list[str]]:
    """The commands of each block of a page, without comments."""
    text = (HOW_TO / f"{page}.md").read_text(encoding="utf-8")
    return [
        [
            re.sub(r"\s+# .*", "", line)
            for line in textwrap.dedent(block).replace("\\\n", " ").splitlines()
        ]
        for language, block in FENCE.findall(text)
        if language in ("", "sh")
    ]


@dataclass(frozen=True)
class Reader:
    """Runs commands of the pages against the services of one store."""

    run: Run
    store: Path
    home: Path

    def replies(self, commands: list[str], *, exit_code: int = 0, **names: str) -> list[Any]:
        """Run each command; its output, from JSON where it is JSON."""
        return [_parsed(self._output(each, exit_code, names)) for each in commands]

    def output_of_program(self, page: str, number: int = 0) -> str:
        """The output of a Python program of a page."""
        text = (HOW_TO / f"{page}.md").read_text(encoding="utf-8")
        programs = [found[2] for found in FENCE.finditer(text) if found[1] == "python"]
        file = self.home / f"{page}-{number}.py"
        file.write_text(programs[number], encoding="utf-8")
        process = start_forked(str(file), environment=self._environment(), directory=self.home)
        output, errors = process.communicate(PATIENCE_S)
        assert process.wait() == 0, errors
        return output

    def first_line(self, command: str) -> str:
        """The first line that a command prints that runs until Ctrl-C, which then ends it."""
        script = f"exec {self._completed(command, {})}"
        with subprocess.Popen(
            ["bash", "-c", script], env=self._environment(), stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            line = process.stdout.readline()
            process.send_signal(signal.SIGINT)
            process.stdout.read()
        assert process.returncode == 0
        return line

    def _output(self, command: str, exit_code: int, names: dict[str, str]) -> str:
        script = self._completed(command, names).replace("curl ", "curl -sSf ")
        program, *words = shlex.split(script)
        if program == MQSTORE and not SHELL.search(script):
            ended = run_mqstore(*words, environment=self._environment(), directory=self.home)
            assert ended.returncode == exit_code, f"{script}\n{ended.stdout}{ended.stderr}"
            return ended.stdout
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=self.home,
            env=self._environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == exit_code, f"{script}\n{done.stdout}{done.stderr}"
        return done.stdout

    def _environment(self) -> dict[str, str]:
        urls = self.run.writer_url, self.run.query_url, self.run.coordinator_url
        names = "MQSTORE_WRITER_URL", "MQSTORE_QUERY_URL", "MQSTORE_COORDINATOR_URL"
        return os.environ | dict(zip(names, urls, strict=True)) | {"MQSTORE_OUTPUT": "json"}

    def _completed(self, command: str, names: dict[str, str]) -> str:
        run = self.run
        for port, url in (
            ("8081", run.writer_url),
            ("8082", run.query_url),
            ("8083", run.coordinator_url),
        ):
            command = command.replace(f"localhost:{port}", url)
        for name, value in {"STORE": str(self.store), **names}.items():
            command = re.sub(rf"(?<![$\w]){name}\b", value, command)
        return re.sub(r"^mqstore |\.venv/bin/mqstore ", f"{MQSTORE} ", command)


def _parsed(output: str) -> Any:
    try:
        return json.loads(output)
    except ValueError:
        return output
