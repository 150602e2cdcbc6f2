"""How a job ends as a command: one line of why on stderr, and its exit code."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Final, NoReturn

from mqstore.client import ClientError, ProblemError
from mqstore.client import Unreachable as NoAnswer
from mqstore.jobs.errors import (
    EXIT_FINE,
    EXIT_REFUSED,
    AccessRefused,
    JobError,
    SparkMissing,
    Unreachable,
    told,
)
from mqstore.storage.errors import StorageError
from mqstore.storage.setting_names import unknown_variables

OF_SPARK: Final = frozenset({"pyspark", "pyarrow", "pandas", "numpy"})
"""Packages that come with mqstore-jobs[spark]."""
SAID_MAX: Final = 300
"""Characters of what a defect, or Spark, says of itself: the log has it whole."""

log = logging.getLogger(__name__)


def run(job: Callable[[], int | None]) -> int:
    """The exit code of ``job``: its own, 0 for None, or that of what ended it.

    Told to end (SIGTERM, as when its pod is deleted) it first gives up what it holds.
    """
    _log_to_stderr()
    unknown = unknown_variables(os.environ)
    if unknown is not None:
        print(f"mqstore: {unknown}", file=sys.stderr)  # noqa: T201  # what a command says
        return EXIT_REFUSED
    before = signal.signal(signal.SIGTERM, _end)
    try:
        return job() or EXIT_FINE
    except Exception as error:
        refused = end_of(error)
        print(f"mqstore: {refused}", file=sys.stderr)  # noqa: T201  # what a command says
        return refused.exit_code
    finally:
        signal.signal(signal.SIGTERM, before)


def _end(number: int, _: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)


def end_of(error: Exception) -> JobError:
    """What an error ends with; of a defect, and where Spark itself gave up, the log has all."""
    refused = refusal(error)
    if refused is None:
        log.error("what ended it is no refusal", exc_info=error)
        refused = JobError(f"{type(error).__name__}: {_said(error)}"[:SAID_MAX])
    return refused


def _said(error: Exception) -> str:
    """In one line: how a text begins; of one with a task's traceback, how that ends."""
    lines = [line for line in str(error).splitlines() if line and not line[0].isspace()]
    is_task = "Traceback (most recent call last):" in lines
    return " ".join(lines[-1:] if is_task else lines[:2])


def refusal(error: Exception) -> JobError | None:
    """The JobError that an error stands for: of the engine, the client, the system, or of Spark,
    which has its own for whatever ends a task, with ours in its text. None for a defect."""
    match error:
        case JobError():
            return error
        case NoAnswer():
            return Unreachable(str(error))
        case ProblemError(status=401 | 403):
            return AccessRefused(str(error))
        case ModuleNotFoundError(name=str(name)) if (package := name.partition(".")[0]) in OF_SPARK:
            return SparkMissing(
                f"{package} is not installed: pip install 'mqstore-jobs[spark]' (some 500 MB)"
            )
        case StorageError() | ClientError() | OSError():
            return JobError(str(error))
    return told(str(error))


def _log_to_stderr() -> None:
    """Stdout is the summary's."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    for name in ("py4j", "httpx"):  # each request
        logging.getLogger(name).setLevel(logging.WARNING)
