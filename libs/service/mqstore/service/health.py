"""The health of a service, at ``/healthz/{live,ready,serving,startup}``."""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import StrEnum
from typing import Any, Final

from mqstore.service import problems
from mqstore.service.problems import Problem

STALL_S: Final = 300.0
"""Seconds for which starting may stand still before a restart is asked for. Its longest step
without a report is one sync, or one file that is made."""


class Phase(StrEnum):
    STARTING = "starting"
    READY = "ready"
    STOPPING = "stopping"
    FAILED = "failed"


class Health:
    """The phase a process is in. Changed by its event loop only; may be read from any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.phase = Phase.STARTING
        self.detail = ""
        self.progress: Callable[[], dict[str, Any]] = dict
        """What there is to tell while starting, for instance how far recovery is."""
        self.moves: Callable[[], object] | None = None
        """What changes again and again while starting goes on; None: starting may wait for others,
        and takes what it takes."""
        self.not_ready_reason: Callable[[], str | None] = lambda: None
        """Why a started service cannot do all that it is for, or None."""
        self.not_serving_reason: Callable[[], str | None] = lambda: self.not_ready_reason()
        """Why it should get no requests at all just now, or None."""
        self.remark: Callable[[], str | None] = lambda: None
        """What a ready service has to say all the same, or None."""
        self.shards: Callable[[], list[int]] = list
        """Which there shall be, by the list that this process knows; none without a list."""
        self._clock = clock
        self._moved: tuple[object, float] = (None, clock())

    def ready(self) -> None:
        self.phase = Phase.READY

    def stopping(self) -> None:
        if self.phase is not Phase.FAILED:
            self.phase = Phase.STOPPING

    def failed(self, why: str) -> None:
        self.phase = Phase.FAILED
        self.detail = why

    def require_started(self) -> None:
        """Raises Problem (503) unless the service can answer."""
        if self.phase is Phase.READY:
            return
        if self.phase is Phase.FAILED:
            raise Problem(problems.STORE_FAILED, self.detail)
        detail = f"the service is {self.phase.value}; try again in a moment"
        stopping = self.phase is Phase.STOPPING
        kind = problems.SHUTTING_DOWN if stopping else problems.STORE_NOT_READY
        raise Problem(kind, detail, extra={"state": self.phase.value})

    def is_live(self) -> tuple[bool, dict[str, Any]]:
        report = self._report()
        if self.phase is Phase.STARTING and self._stands_still():
            return False, report | {"detail": f"starting has not moved for {STALL_S:g} s"}
        return self.phase is not Phase.FAILED, report

    def has_begun(self) -> tuple[bool, dict[str, Any]]:
        """Whether the process has started and not failed. A probe sets no limit on the opening."""
        return self.phase is not Phase.FAILED, self._report()

    def is_ready(self) -> tuple[bool, dict[str, Any]]:
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
        """Whether some requests are served, and a report; ``is_ready`` requires that all are."""
        if self.phase is not Phase.READY:
            return False, self._report()
        reason, report = self.not_serving_reason(), self.is_ready()[1]
        if reason is not None:
            report |= {"status": "not-ready", "detail": reason}
        return reason is None, report

    def _stands_still(self) -> bool:
        """Seen from one probe to the next."""
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
        return report
