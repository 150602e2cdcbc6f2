"""Why an open store accepts no changes: it failed, or it was opened for reading only."""

from __future__ import annotations

import logging
from collections.abc import Callable

from mqstore.storage.errors import StoreFailed, StoreNotWritable
from mqstore.storage.metadata.state_page import StatePage
from mqstore.storage.metadata.state_snapshot import Health

log = logging.getLogger(__name__)


class FailureState:
    """Holds the error that ended a store. Parts report their failures here. Any thread."""

    def __init__(
        self,
        state: StatePage,
        read_only: str | None,
        on_failure: Callable[[BaseException], None] | None,
    ) -> None:
        """``read_only`` is why the store was opened for reading only; None where it was not.

        ``on_failure`` is called once, after the state page shows the failure.
        """
        self.error: BaseException | None = None
        """The first reported error: from then on nothing is acknowledged."""
        self._state = state
        self._read_only = read_only
        self._on_failure = on_failure
        self._listeners: list[Callable[[StoreFailed], None]] = []

    def add_listener(self, listener: Callable[[StoreFailed], None]) -> None:
        """Call ``listener`` when the store fails, in the thread that reports the failure."""
        self._listeners.append(listener)

    def report(self, error: BaseException) -> None:
        """End the store: a sync failed, or a service ended. Later reports have no effect."""
        if self.error is not None:
            return
        self.error = error
        log.critical("the store failed: %s", error)
        failure = error if isinstance(error, StoreFailed) else StoreFailed(str(error))
        for listener in self._listeners:
            listener(failure)
        self._state.set_health(Health.FAILED)
        if self._on_failure is not None:
            self._on_failure(error)

    @property
    def why_read_only(self) -> str | None:
        """Why nothing can be changed, or None."""
        return self._read_only if self.error is None else str(self.error)

    def require_none(self) -> None:
        """Raise StoreFailed if the store has failed."""
        if self.error is not None:
            raise StoreFailed(str(self.error))

    def require_writable(self) -> None:
        """Raise StoreFailed or StoreNotWritable if nothing can be changed."""
        self.require_none()
        if self._read_only is not None:
            raise StoreNotWritable("read-only", f"nothing can be changed: {self._read_only}")
