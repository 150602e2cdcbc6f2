"""Requests that the log reach an offset: on disk (``flush``), or in the page cache (``commit``)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from mqstore.storage.errors import StoreFailed

log = logging.getLogger(__name__)


class RequestService(Protocol):
    """The service that serves requests."""

    @property
    def reached_offset(self) -> int:
        """Every byte of the log below this is where requests want it."""

    def request(self, offset: int) -> OffsetRequest:
        """Create a request for an offset."""

    def when_done(self, request: OffsetRequest, callback: Callable[[OffsetRequest], None]) -> None:
        """Call back once the request is done."""


class OffsetRequest:
    """A request that the log reach ``offset``.

    Any thread may read it. Once ``done``, ``failed`` is final.
    """

    __slots__ = ("_callbacks", "_service", "done", "error", "offset")

    def __init__(self, service: RequestService, offset: int) -> None:
        self._service = service
        self._callbacks: list[Callable[[OffsetRequest], None]] = []
        self.offset = offset
        self.done = False
        self.error: StoreFailed | None = None

    @property
    def failed(self) -> bool:
        """Whether the request failed."""
        return self.error is not None

    def result(self) -> None:
        """Check a done request.

        Raises StoreFailed when it failed, RuntimeError when it is not done.
        """
        if self.error is not None:
            raise StoreFailed(str(self.error)) from self.error
        if not self.done:
            raise RuntimeError("request is not done; wait for it first")

    def add_done_callback(self, callback: Callable[[OffsetRequest], None]) -> None:
        """Call back once the request is done, from the service's thread, or at once.

        The service's thread then serves the request. A callback must not block; its exceptions are
        logged.
        """
        self._service.when_done(self, callback)

    def complete(self, error: StoreFailed | None) -> None:
        """Mark the request done; called once by the service, with its mutex held."""
        self.error = error
        self.done = True

    def run_callbacks(self) -> None:
        """Run the callbacks of a done request; called by the service with no lock held."""
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            self.run_callback(callback)

    def add_callback(self, callback: Callable[[OffsetRequest], None]) -> bool:
        """Keep a callback; False when the request is done already."""
        if not self.done:
            self._callbacks.append(callback)
        return not self.done

    def run_callback(self, callback: Callable[[OffsetRequest], None]) -> None:
        """Run one callback, and log its exception."""
        try:
            callback(self)
        except Exception:
            log.exception("callback failed", extra={"offset": self.offset})
