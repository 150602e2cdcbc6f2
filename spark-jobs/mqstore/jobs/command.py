"""How a job ends as a command: one line of why on stderr, and its exit code."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable

from mqstore.client import ClientError, ProblemError
from mqstore.client import Unreachable as NoAnswer
from mqstore.jobs.errors import EXIT_FINE, AccessRefused, JobError, Unreachable, told
from mqstore.storage.errors import StorageError


def run(job: Callable[[], int | None]) -> int:
    """The exit code of ``job``: its own, 0 for None, or that of the JobError which ended it.

    Anything else that goes wrong is passed on: a defect is to be seen whole.
    """
    _log_to_stderr()
    try:
        return job() or EXIT_FINE
    except Exception as error:
        refused = refusal(error)
        if refused is None:
            raise
        print(f"mqstore: {refused}", file=sys.stderr)  # noqa: T201  # what a command says
        return refused.exit_code


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
        case StorageError() | ClientError() | OSError():
            return JobError(str(error))
    return told(str(error))


def _log_to_stderr() -> None:
    """Stdout is the summary's."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    for name in ("py4j", "httpx"):  # each request
        logging.getLogger(name).setLevel(logging.WARNING)
