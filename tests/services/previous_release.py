"""Services of the release before transactions moved to store-writer, from the history."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from mqstore.client import Target
from tests.services.service_processes import REPOSITORY, Process, service

COMMIT: Final = "5ff2e5eb60a86dfa2815126f84377264bec50256"
"""The last commit whose coordinator appends through store-writer's internal routes."""
FOLDER: Final = REPOSITORY / "build" / "previous-release" / COMMIT
PARTS: Final = (
    *("libs/storage", "libs/service", "libs/client"),
    *("services/store-writer", "services/query", "services/transaction-coordinator"),
)


def python_path() -> str:
    """Directory of the modules of that release, built at the first use. Skips the test if the
    history lacks its commit, as in a shallow clone."""
    if _git("cat-file", "-e", f"{COMMIT}^{{commit}}").returncode:
        pytest.skip(f"NOT TESTED: the history has no commit {COMMIT}; fetch it (no shallow clone)")
    if not FOLDER.exists():
        _build()
    return os.pathsep.join(str(FOLDER / each) for each in PARTS)


def _build() -> None:
    staged = FOLDER.with_name(f"{COMMIT}.{os.getpid()}")
    staged.mkdir(parents=True)
    archive = _git("archive", COMMIT, *PARTS)
    archive.check_returncode()
    subprocess.run(["tar", "-x", "-C", staged], input=archive.stdout, check=True)
    # Without optimization the compiler takes a fifth of the time.
    setup = staged / "libs" / "storage" / "setup.py"
    setup.write_text(setup.read_text().replace('["-O3"]', '["-O0", "-g0"]'))
    subprocess.run(
        [sys.executable, "setup.py", "-q", "build_ext", "--inplace"],
        cwd=staged / "libs" / "storage",
        check=True,
        capture_output=True,
    )
    try:
        staged.rename(FOLDER)
    except OSError:  # another process of the tests was faster
        shutil.rmtree(staged)


def _git(*words: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["git", *words], cwd=REPOSITORY, capture_output=True, check=False)


@contextmanager
def previous(name: str, store: Path, **settings: Any) -> Iterator[Process]:
    """A service of that release: ``writer``, ``query`` or ``coordinator``."""
    target = Target.QUERY if name == "query" else Target.WRITER
    given = {"python_path": python_path(), **settings}
    with service(target, ["-m", f"mqstore.{name}"], store, **given) as process:
        yield process
