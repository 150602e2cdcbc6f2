"""The description of one type of problem (RFC 9457); and their table, which the modules
of problems fill."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

CONTENT_TYPE: Final = "application/problem+json"
TYPE_PREFIX: Final = "urn:mqstore:problem:"


@dataclass(frozen=True, slots=True)
class ProblemType:
    """One kind of error: its stable name and HTTP status, when it is returned, and what to do."""

    name: str
    status: int
    title: str
    when: str
    remedy: str
    """Remedy for the caller or the operator, for the reference of problems."""
    retry_after_s: int | None = None
    """Sent as Retry-After: the same request may succeed later."""

    @property
    def urn(self) -> str:
        """The member ``type`` of the problem: stable, and the same in every service."""
        return TYPE_PREFIX + self.name


REGISTRY: Final[dict[str, ProblemType]] = {}


def register(
    name: str, status: int, title: str, when: str, remedy: str, *, retry_after_s: int | None = None
) -> ProblemType:
    """Add a type to the table."""
    REGISTRY[name] = ProblemType(name, status, title, when, remedy, retry_after_s)
    return REGISTRY[name]
