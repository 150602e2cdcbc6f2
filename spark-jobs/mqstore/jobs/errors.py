"""What ends a job, each error with the exit code that it ends with.

::

    JobError             2  refused, with why
    ├── WrongUsage       2  an option or argument that cannot be
    ├── JavaMissing      2  Spark needs a Java that is not there
    ├── SparkMissing     2  the packages of mqstore-jobs[spark] are not installed
    ├── NoStore          2  nothing to read where the job was told to read
    ├── AccessRefused    2  the service wants other credentials
    ├── SegmentGone      2  retention deleted what was still to be read
    ├── StoreChanged     2  the store was recovered while it was read
    ├── OutputRefused    2  what the job made cannot be put where it was told to
    ├── ArchiveDamaged   2  what was archived is not read back as it was written
    └── Unreachable      3  a service gives no answer

Spark passes an error of a task on as text: ``told`` finds it there again.
"""

from __future__ import annotations

import re
from typing import Final

EXIT_FINE: Final = 0
EXIT_FINDINGS: Final = 1
EXIT_REFUSED: Final = 2
EXIT_UNREACHABLE: Final = 3


class JobError(Exception):
    """Base of all errors of the jobs."""

    exit_code = EXIT_REFUSED


class WrongUsage(JobError):
    """An option or argument that cannot be."""


class JavaMissing(JobError):
    """Spark needs a Java that is not there."""


class SparkMissing(JobError):
    """The packages of mqstore-jobs[spark] are not installed."""


class NoStore(JobError):
    """Nothing to read where the job was told to read."""


class AccessRefused(JobError):
    """The service wants other credentials."""


class SegmentGone(JobError):
    """Retention deleted what was still to be read."""


class StoreChanged(JobError):
    """The store was recovered while it was read."""


class OutputRefused(JobError):
    """What the job made cannot be put where it was told to."""


class ArchiveDamaged(JobError):
    """What was archived is not read back as it was written."""


class Unreachable(JobError):
    """A service gives no answer, however often it is asked."""

    exit_code = EXIT_UNREACHABLE


_TYPES: Final[tuple[type[JobError], ...]] = (JobError, *JobError.__subclasses__())
_BY_NAME: Final = {each.__name__: each for each in _TYPES}
_TOLD: Final = re.compile(rf"^{re.escape(__name__)}\.(\w+): (.*)$", re.MULTILINE)


def told(text: str) -> JobError | None:
    """The last error of ours in the text of one of Spark's; None without one."""
    found = _TOLD.findall(text)
    if not found:
        return None
    name, why = found[-1]
    return _BY_NAME.get(name, JobError)(why)
