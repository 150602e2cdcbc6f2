"""Distributions installed from their wheels into virtual environments of their own."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import Final

from tests.locks import ROOT, read_lock

_UV: Final = str(Path(sys.executable).with_name("uv"))
# The kernel module is compiled without optimization, and not translated again into C if that is
# newer than its sources: both take most of the time of its build.
_ENVIRONMENT: Final = {
    **{n: value for n, value in os.environ.items() if not n.startswith(("MQSTORE_", "PYTHON"))},
    "CFLAGS": "-O0 -g0",
}


@functools.cache
def build_wheel(folder: str) -> Path:
    """The wheel of one folder of the repository, built once from a copy of the folder."""
    target = Path(_builds().name)
    source = target / "source" / folder
    built = shutil.ignore_patterns("build", "*.egg-info", "__pycache__", "*.so")
    shutil.copytree(ROOT / folder, source, ignore=built)
    wheels = target / "wheels" / folder
    options = ["--wheel", "--no-build-isolation", "--python", sys.executable]
    _uv("build", *options, "--out-dir", str(wheels), str(source))
    (wheel,) = wheels.glob("*.whl")
    return wheel


@functools.cache
def _builds() -> tempfile.TemporaryDirectory[str]:
    """A directory that is removed when the process ends."""
    return tempfile.TemporaryDirectory(prefix="mqstore-wheels-")


class Installation:
    """A virtual environment that holds the given wheels and what they depend on."""

    def __init__(self, folder: Path, *wheels: Path) -> None:
        venv.create(folder, with_pip=False)
        self._folder = folder
        python = str(folder / "bin" / "python")
        constraints = folder / "constraints.txt"
        constraints.write_text("".join(f"{each}\n" for each in read_lock("run")))
        words = ["--python", python, "--constraint", str(constraints), *map(str, wheels)]
        _uv("pip", "install", *words)

    def run(self, program: str, *words: str) -> subprocess.CompletedProcess[str]:
        """The output and exit code of a program of the environment."""
        command = [str(self._folder / "bin" / program), *words]
        return subprocess.run(
            command,
            env=_ENVIRONMENT,
            cwd=self._folder,
            capture_output=True,
            text=True,
            check=False,
        )

    def licenses(self, name: str) -> str:
        """The license files of a distribution of the environment, by their paths."""
        code = f"import importlib.metadata as m; print(*m.files({name!r}))"
        return " ".join(
            each for each in self.run("python", "-c", code).stdout.split() if "/licenses/" in each
        )

    def distributions(self) -> set[str]:
        """The names of what is installed, in lower case."""
        code = "import importlib.metadata as m; print(*(d.name for d in m.distributions()))"
        return set(self.run("python", "-c", code).stdout.lower().replace("_", "-").split())


def _uv(*words: str) -> None:
    subprocess.run([_UV, *words, "--quiet", "--system-certs"], env=_ENVIRONMENT, check=True)
