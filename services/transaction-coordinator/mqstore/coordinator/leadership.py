"""Which coordinator leads. Only a choice of who tries: what keeps an old leader out is the fence of
store-writer, whose epochs come from here."""

from __future__ import annotations

from typing import Final, Protocol

from mqstore.coordinator.errors import CoordinatorError

GIVEN_UP_S: Final = 3.0
"""For so long whoever gave the lead up leaves it to others, who look for it each second."""


class NotLeading(CoordinatorError):
    """Another coordinator leads, or none that is known."""


class Leadership(Protocol):
    """Every method may be called from any thread."""

    def start(self) -> None:
        """Begin to stand for election."""

    def stop(self) -> None:
        """Let go of the lead, so that another one takes it at once."""

    def give_up(self, why: str) -> None:
        """Let go of the lead for as long as others need to take it; then stand for it again."""

    def term(self) -> int:
        """Number of the present time in the lead: another one is another number, and what was read
        in an earlier one may be out of date. Raises NotLeading."""

    def next_epoch(self, present: int) -> int:
        """An epoch above ``present`` that nobody else has, or ever had. Raises NotLeading."""

    def leader_url(self) -> str | None:
        """Where the leader is reached, as far as known."""
