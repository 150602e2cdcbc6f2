"""How a job ends as a command: one line of why on stderr, and its exit code."""

from __future__ import annotations

import sys
from collections.abc import Callable

from mqstore.jobs.errors import EXIT_FINE, JobError, told


def run(job: Callable[[], int | None]) -> int:
    """The exit code of ``job``: its own, 0 for None, or that of the JobError which ended it.

    Anything else that goes wrong is passed on: a defect is to be seen whole.
    """
    try:
        return job() or EXIT_FINE
    except JobError as error:
        return _refused(error)
    except Exception as error:
        # Spark has its own error for whatever ends a task, with ours in its text.
        found = told(str(error))
        if found is None:
            raise
        return _refused(found)


def _refused(error: JobError) -> int:
    print(f"mqstore: {error}", file=sys.stderr)  # noqa: T201  # what a command says
    return error.exit_code
