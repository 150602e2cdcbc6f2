"""The stream of a topic's events, over a store that replies by a script."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mqstore.query import event_routes
from mqstore.query.opened_store import OpenedStore
from mqstore.query.service import QueryService
from mqstore.service.arrivals import ReaderArrivals
from mqstore.service.events import RETRY
from mqstore.service.message_bodies import BodyForm
from mqstore.storage.codec import cursors
from mqstore.storage.errors import (
    RecordExpired,
    StorageError,
    StoreNotOpen,
    TopicNotReadable,
    TopicUnknown,
)
from mqstore.storage.lookup.answers import KeyAnswer, ScanRange
from mqstore.storage.lookup.topic_scan import TopicQuery

QUERY = TopicQuery("t", newest_first=False)


class Scripted:
    """A query service whose scans of a topic match no message.

    ``scans`` has the physical offset that each scan reaches, or the error that it raises. The
    stream ends with the last scan.
    """

    def __init__(self, scans: list[int | StorageError]) -> None:
        self.arrivals = ReaderArrivals(cast(Any, self), asyncio.get_running_loop())
        self.settings = SimpleNamespace(shard=0)
        self.reader = SimpleNamespace(scans=self)
        self.id = ""
        self._scans: Iterator[int | StorageError] = iter(scans)
        self._left = len(scans)

    async def run_admitted(self, look: Any) -> Any:
        return look()

    def require_current(self, store: Any) -> None:
        """The store is never replaced."""

    def require_consuming(self, topic: str, group: str) -> None:
        """The topic may be read."""

    def reply_bytes_max(self, *, inflate: bool) -> int:
        return 1 << 20

    def queues(self, topic: str) -> list[Any]:
        return []

    def scan_from(self, query: TopicQuery, start: int | None, **_: int) -> KeyAnswer:
        reached = next(self._scans)
        if isinstance(reached, StorageError):
            raise reached
        self._left -= 1
        if self._left == 0:
            self.arrivals.interrupt()
        following = cursors.encode(reached, repr(query))
        return KeyAnswer([], [], following, False, ScanRange(0, 0, 100, 0, reached))


def events_of(
    scans: list[int | StorageError], is_allowed: Callable[[], bool] = lambda: True
) -> list[bytes]:
    """Return all events of a stream."""

    async def follow() -> list[bytes]:
        scripted = Scripted(scans)
        service, store = cast(QueryService, scripted), cast(OpenedStore, scripted)
        stream = event_routes._Stream(service, store, QUERY, None, None, BodyForm(), is_allowed)
        return [event async for event in stream.events()]

    return asyncio.run(follow())


def position(offset: int) -> bytes:
    place = cursors.encode(offset, "events of t")
    return f"id: {place}\nevent: position\ndata: {{}}\n\n".encode()


def test_stream_reports_its_position_while_no_message_matches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert events_of([100, 200, 300]) == [RETRY, position(100)]
    monkeypatch.setattr(event_routes, "HEARTBEAT_S", 0.0)
    assert events_of([100, 200, 300]) == [RETRY, position(100), position(200), position(300)]


@pytest.mark.parametrize("failure", [RecordExpired, TopicNotReadable, TopicUnknown, StoreNotOpen])
def test_stream_ends_at_an_error_that_a_new_request_reports(failure: type[StorageError]) -> None:
    error = failure("recovering", "why") if failure is StoreNotOpen else failure("why")
    assert events_of([100, error]) == [RETRY, position(100)]


def test_stream_ends_once_its_token_was_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_routes, "HEARTBEAT_S", 0.0)
    allowed = iter([True, True, False])
    events = events_of([100, 200, 300, 400], lambda: next(allowed))
    assert events == [RETRY, position(100), position(200)]
