"""The coordinator's errors.

::

    CoordinatorError
    ├── ShardUnavailable     a shard gave no reply that can be used
    ├── TargetRefused        a callback's address is not allowed (targets)
    ├── NotSent, Unanswered  a call of a producer failed (callbacks)
    └── NotWritten           the API server rejected an Event (kube_events)
"""

from __future__ import annotations

from mqstore.service import problems
from mqstore.service.problems import Problem


class CoordinatorError(Exception):
    """Base of all errors of this package."""


class ShardUnavailable(CoordinatorError):
    """A shard gave no reply that can be used.

    ``is_sent``: whether the request may have reached the shard, which then may have carried it out.
    """

    def __init__(self, shard: int, reason: str, *, is_sent: bool) -> None:
        super().__init__(f"shard {shard} {reason}")
        self.is_sent = is_sent

    @property
    def problem(self) -> Problem:
        """The problem (503) that a client receives."""
        detail = str(self)
        if self.is_sent:
            detail += ": it may have been done, and repeating it is fine"
        return Problem(problems.COORDINATOR_NOT_READY, detail)
