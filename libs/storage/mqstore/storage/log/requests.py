"""Wishes that the log reach some place up to an offset: the disk (``flush``), or the page cache
(``commit``)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from mqstore.storage.errors import StoreFailed

log = logging.getLogger(__name__)


class RequestService(Protocol):
    """Who fulfils requests."""

    def request(self, offset: int) -> OffsetRequest: ...

    def when_done(
        self, request: OffsetRequest, callback: Callable[[OffsetRequest], None]
    ) -> None: ...


class OffsetRequest:
    """Somebody's wish that the log be there up to ``offset``.

    Any thread may look at it. Once ``done``, ``failed`` tells whether it is.
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
        return self.error is not None

    def result(self) -> None:
        """Return when the log is there; raises StoreFailed when it never will be."""
        if self.error is not None:
            raise StoreFailed(str(self.error)) from self.error
        if not self.done:
            raise RuntimeError("request is not done; wait for it first")

    def add_done_callback(self, callback: Callable[[OffsetRequest], None]) -> None:
        """Call back once the request is done, from the service's thread, or at once.

        Asks that thread to see to it. A callback must not block; what it raises is logged.
        """
        self._service.when_done(self, callback)

    def complete(self, error: StoreFailed | None) -> None:
        """Called by the service, once, with its mutex held."""
        self.error = error
        self.done = True

    def call_back(self) -> None:
        """Called by the service with no lock held, once it is done."""
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            self.tell(callback)

    def add_callback(self, callback: Callable[[OffsetRequest], None]) -> bool:
        """Keep a callback for later; False when it is already too late to."""
        if not self.done:
            self._callbacks.append(callback)
        return not self.done

    def tell(self, callback: Callable[[OffsetRequest], None]) -> None:
        try:
            callback(self)
        except Exception:
            log.exception("callback failed", extra={"offset": self.offset})
