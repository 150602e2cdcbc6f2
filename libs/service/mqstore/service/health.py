"""The health of a service, at ``/healthz/{live,ready,serving,startup}``."""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import StrEnum
from typing import Any, Final

from mqstore.service import problems
from mqstore.service.problems import Problem

STALL_S: Final = 300.0
"""Seconds without progress after which a starting process is reported as not live.

The longest step of a start that reports no progress is one sync, or the creation of one file."""


class Phase(StrEnum):
    """A phase in the life of a service's process."""

    STARTING = "starting"
    READY = "ready"
    STOPPING = "stopping"
    FAILED = "failed"


class Health:
    """The phase of a process, with reports for probes. Changed by the event loop only; may be
    read from any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.phase = Phase.STARTING
        self.detail = ""
        self.progress: Callable[[], dict[str, Any]] = dict
        """Returns members of the report of a start, for instance the progress of recovery."""
        self.moves: Callable[[], object] | None = None
        """Returns a value that changes while the start makes progress. None: the start may wait
        for another process without a limit."""
        self.not_ready_reason: Callable[[], str | None] = lambda: None
        """Returns why a started service cannot serve all requests, or None."""
        self.not_serving_reason: Callable[[], str | None] = lambda: self.not_ready_reason()
        """Returns why a started service can serve no request at all, or None."""
        self.remark: Callable[[], str | None] = lambda: None
        """Returns a detail for the report of a ready service, or None."""
        self.shards: Callable[[], list[int]] = list
        """Returns the numbers in this process's list of shards; none without a list."""
        self.key_owners: Callable[[], dict[str, Any] | None] = lambda: None
        """Returns the record of the shards that own keys; None in a service that keeps none."""
        self._clock = clock
        self._moved: tuple[object, float] = (None, clock())

    def ready(self) -> None:
        """Enter the phase ready."""
        self.phase = Phase.READY

    def stopping(self) -> None:
        """Enter the phase stopping, unless the process has failed."""
        if self.phase is not Phase.FAILED:
            self.phase = Phase.STOPPING

    def failed(self, why: str) -> None:
        """Enter the phase failed; ``why`` is in all further reports."""
        self.phase = Phase.FAILED
        self.detail = why

    def require_started(self) -> None:
        """Raise Problem (503) unless the service has started."""
        if self.phase is Phase.READY:
            return
        if self.phase is Phase.FAILED:
            raise Problem(problems.STORE_FAILED, self.detail)
        detail = f"the service is {self.phase.value}; try again in a moment"
        stopping = self.phase is Phase.STOPPING
        kind = problems.SHUTTING_DOWN if stopping else problems.STORE_NOT_READY
        raise Problem(kind, detail, extra={"state": self.phase.value})

    def is_live(self) -> tuple[bool, dict[str, Any]]:
        """Return whether the process works or its start makes progress, and a report."""
        report = self._report()
        if self.phase is Phase.STARTING and self._stands_still():
            return False, report | {"detail": f"starting has not moved for {STALL_S:g} s"}
        return self.phase is not Phase.FAILED, report

    def has_begun(self) -> tuple[bool, dict[str, Any]]:
        """Return whether the process has not failed, and a report: a start may take any time."""
        return self.phase is not Phase.FAILED, self._report()

    def is_ready(self) -> tuple[bool, dict[str, Any]]:
        """Return whether all requests are served, and a report."""
        if self.phase is not Phase.READY:
            return False, self._report()
        reason = self.not_ready_reason()
        report = self._report()
        if reason is not None:
            report |= {"status": "not-ready", "detail": reason}
        elif (remark := self.remark()) is not None:
            report["detail"] = remark
        return reason is None, report

    def is_serving(self) -> tuple[bool, dict[str, Any]]:
        """Return whether some requests are served, and a report; see ``is_ready``."""
        if self.phase is not Phase.READY:
            return False, self._report()
        reason, report = self.not_serving_reason(), self.is_ready()[1]
        if reason is not None:
            report |= {"status": "not-ready", "detail": reason}
        return reason is None, report

    def _stands_still(self) -> bool:
        """Return whether ``moves`` has not changed for STALL_S, as seen by this and past probes."""
        if self.moves is None:
            return False
        now, seen = self._clock(), self.moves()
        if seen != self._moved[0]:
            self._moved = (seen, now)
        return now - self._moved[1] >= STALL_S

    def _report(self) -> dict[str, Any]:
        report: dict[str, Any] = {"status": self.phase.value}
        if self.detail:
            report["detail"] = self.detail
        if self.phase is Phase.STARTING:
            report |= self.progress()
        if shards := self.shards():
            report["shards"] = shards
        if (owners := self.key_owners()) is not None:
            report["keyOwners"] = owners
        return report
