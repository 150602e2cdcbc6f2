"""Runs a job as a command: an error becomes one line on stderr and an exit code."""

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
    job_error_in,
)
from mqstore.storage.errors import StorageError
from mqstore.storage.settings import unknown_variables

OF_SPARK: Final = frozenset({"pyspark", "pyarrow", "pandas", "numpy"})
"""Packages that the extra mqstore-jobs[spark] installs."""
SAID_MAX: Final = 300
"""Maximum characters of the text of a defect or of Spark's error; the log has the whole text."""

log = logging.getLogger(__name__)


def run(job: Callable[[], int | None]) -> int:
    """Run a job and return its exit code: its own, 0 for None, or that of its error.

    SIGTERM (Kubernetes sends it when it deletes a pod) raises SystemExit in the job, which releases
    its locks and leases first.
    """
    _log_to_stderr()
    unknown = unknown_variables(os.environ)
    if unknown is not None:
        print(f"mqstore: {unknown}", file=sys.stderr)  # noqa: T201  # output of a command
        return EXIT_REFUSED
    before = signal.signal(signal.SIGTERM, _end)
    try:
        return job() or EXIT_FINE
    except Exception as error:
        refused = job_error_of(error)
        print(f"mqstore: {refused}", file=sys.stderr)  # noqa: T201  # output of a command
        return refused.exit_code
    finally:
        signal.signal(signal.SIGTERM, before)


def _end(number: int, _: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)


def job_error_of(error: Exception) -> JobError:
    """The JobError for any error; logs the traceback of a defect or of an error of Spark itself."""
    refused = refusal(error)
    if refused is None:
        log.error("the job failed", exc_info=error)
        refused = JobError(f"{type(error).__name__}: {_said(error)}"[:SAID_MAX])
    return refused


def _said(error: Exception) -> str:
    """The text of an error in one line: its first two lines, or the last of a task's traceback."""
    lines = [line for line in str(error).splitlines() if line and not line[0].isspace()]
    is_task = "Traceback (most recent call last):" in lines
    return " ".join(lines[-1:] if is_task else lines[:2])


def refusal(error: Exception) -> JobError | None:
    """The JobError for an error of the engine, the client, the system or Spark.

    Spark raises an error of its own for a failed task; its text holds ours. None for a defect.
    """
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
    return job_error_in(str(error))


def _log_to_stderr() -> None:
    """Send log lines to stderr: stdout is for the summary."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    for name in ("py4j", "httpx"):  # each request
        logging.getLogger(name).setLevel(logging.WARNING)
