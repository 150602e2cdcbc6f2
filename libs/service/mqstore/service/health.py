"""What a service says of itself at ``/healthz/{live,ready,startup}``."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any

from mqstore.service import problems
from mqstore.service.problems import Problem


class Phase(StrEnum):
    STARTING = "starting"
    READY = "ready"
    STOPPING = "stopping"
    FAILED = "failed"


class Health:
    """The phase a process is in. Changed by its event loop only; may be read from any thread."""

    def __init__(self) -> None:
        self.phase = Phase.STARTING
        self.started = False
        self.detail = ""
        self.progress: Callable[[], dict[str, Any]] = dict
        """What there is to tell while starting, for instance how far recovery is."""
        self.not_ready_reason: Callable[[], str | None] = lambda: None
        """Why a started service should get no requests just now, or None."""

    def ready(self) -> None:
        self.phase = Phase.READY
        self.started = True

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
        return self.phase is not Phase.FAILED, self._report()

    def is_started(self) -> tuple[bool, dict[str, Any]]:
        return self.started, self._report()

    def is_ready(self) -> tuple[bool, dict[str, Any]]:
        if self.phase is not Phase.READY:
            return False, self._report()
        reason = self.not_ready_reason()
        report = self._report()
        if reason is not None:
            report |= {"status": "not-ready", "detail": reason}
        return reason is None, report

    def _report(self) -> dict[str, Any]:
        report: dict[str, Any] = {"status": self.phase.value}
        if self.detail:
            report["detail"] = self.detail
        if self.phase is Phase.STARTING:
            report |= self.progress()
        return report
