"""The errors that end a job, with their exit codes.

::

    JobError             2  the job was refused, with the reason
    ├── WrongUsage       2  an option or argument is invalid
    ├── JavaMissing      2  Spark does not find the Java that it needs
    ├── SparkMissing     2  the packages of mqstore-jobs[spark] are not installed
    ├── SparkEnded       2  Spark's Java process of the driver has ended
    ├── NoStore          2  the given place holds no readable store
    ├── AccessRefused    2  the service rejects the credentials
    ├── SegmentGone      2  retention deleted a segment before the job read it
    ├── QueuesBehind     2  damage was found before the queues were complete
    ├── StoreChanged     2  the store was recovered while the job read it
    ├── OutputRefused    2  the job cannot write to the given output
    ├── ArchiveDamaged   2  an archived file does not read back as it was written
    └── Unreachable      3  a service does not answer

Spark passes an error of a task on as text, in which ``job_error_in`` finds it.
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
    """An option or argument is invalid."""


class JavaMissing(JobError):
    """Spark does not find the Java that it needs."""


class SparkMissing(JobError):
    """The packages of mqstore-jobs[spark] are not installed."""


class SparkEnded(JobError):
    """Spark's Java process of the driver has ended while the job used it."""


class NoStore(JobError):
    """The given place holds no readable store."""


class AccessRefused(JobError):
    """The service rejects the credentials."""


class SegmentGone(JobError):
    """Retention deleted a segment before the job read it."""


class QueuesBehind(JobError):
    """Damage was found in the log before the queues, which lead on behind it, were complete."""


class StoreChanged(JobError):
    """The store was recovered while the job read it."""


class OutputRefused(JobError):
    """The job cannot write to the given output."""


class ArchiveDamaged(JobError):
    """An archived file does not read back as it was written."""


class Unreachable(JobError):
    """A service does not answer, after all retries."""

    exit_code = EXIT_UNREACHABLE


_TYPES: Final[tuple[type[JobError], ...]] = (JobError, *JobError.__subclasses__())
_BY_NAME: Final = {each.__name__: each for each in _TYPES}
_PASSED_ON: Final = re.compile(rf"^{re.escape(__name__)}\.(\w+): (.*)$", re.MULTILINE)


def job_error_in(text: str) -> JobError | None:
    """The last JobError in the text of an error of Spark; None if the text holds none."""
    found = _PASSED_ON.findall(text)
    if not found:
        return None
    name, why = found[-1]
    return _BY_NAME.get(name, JobError)(why)
