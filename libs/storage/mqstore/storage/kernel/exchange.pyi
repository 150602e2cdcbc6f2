"""Requests of one connection under one head: their bodies, their replies, and their durations."""

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar, final

T = TypeVar("T")

class ValueCounts:
    """Counts of values by upper bound. Thread-safe."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        """``bounds`` are ascending, at most 32. ValueError."""
    @property
    def bounds(self) -> tuple[float, ...]:
        """As given."""
    @property
    def counts(self) -> list[int]:
        """One number for each bound, and one for all values above them."""
    @property
    def total(self) -> float:
        """The sum of the values."""
    def observe(self, value: float) -> None:
        """Count a value."""
    def add(self, other: ValueCounts) -> None:
        """Add the counts of another one with the same bounds. ValueError."""

@final
class RepeatedHead:
    """A head with a content-length, which most clients send again with the next body."""

    def __init__(self, before: bytes, after: bytes) -> None:
        """``before`` ends before the digits of the content-length, ``after`` begins behind them and
        ends with the head."""
    @property
    def before(self) -> bytes:
        """As given."""
    @property
    def after(self) -> bytes:
        """As given."""
    def body_of(self, data: bytes) -> bytes | None:
        """The body of a whole request with this head; None for any other bytes."""

@final
class RequestIds:
    """Ids of requests: a prefix and a number. Thread-safe."""

    def __init__(self, prefix: str) -> None: ...
    def next(self) -> str:
        """Generate an id."""

@final
class Exchange(Generic[T]):
    """Handles the bodies of one connection under one head. For one thread."""

    def __init__(
        self,
        begin: Callable[[bytes, Mapping[str, str]], bytes | Any | None],
        *,
        later: Callable[[Any, int, Any, str, float], T],
        encode_start: Callable[[Any], bytes],
        note_id: Callable[[str], object],
        ids: RequestIds,
        given_id: str | None,
        count: Callable[[float], None] | ValueCounts,
    ) -> None:
        """``begin`` handles a body, with the parameters of its path, and returns the body of a
        reply, None, or what ``later`` makes a reply of (with the size of the body, the fields, the
        request's id and the monotonic time at which it began). ``encode_start`` returns the head of
        a reply with these fields, up to its content-length. ``note_id`` is called with each
        request's id, which is ``given_id`` or the next of ``ids``. ``count`` counts the seconds
        from a request to its reply."""
    def reply(self, body: bytes, params: Mapping[str, str], fields: object) -> bytes | T | None:
        """Handle a body, and return the bytes of its reply, what ``later`` returned, or None where
        ``begin`` returned None. Raises what ``begin`` and ``later`` raise. ``fields`` are compared
        by identity."""
    def encode(self, body: bytes, fields: object, request_id: str, started: float) -> bytes:
        """Count a reply, and return its bytes: head and body."""
