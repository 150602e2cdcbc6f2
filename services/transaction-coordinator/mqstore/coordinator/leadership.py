"""Which coordinator leads. Only a choice of who tries: what keeps an old leader out is the fence of
store-writer, whose epochs come from here."""

from __future__ import annotations

from typing import Protocol

from mqstore.coordinator.errors import CoordinatorError


class NotLeading(CoordinatorError):
    """Another coordinator leads, or none that is known."""


class Leadership(Protocol):
    """Every method may be called from any thread."""

    def start(self) -> None:
        """Begin to stand for election."""

    def stop(self) -> None:
        """Let go of the lead, so that another one takes it at once."""

    def term(self) -> int:
        """Number of the present time in the lead: another one is another number, and what was read
        in an earlier one may be out of date. Raises NotLeading."""

    def next_epoch(self, present: int) -> int:
        """An epoch above ``present`` that nobody else has, or ever had. Raises NotLeading."""

    def leader_url(self) -> str | None:
        """Where the leader is reached, as far as known."""
