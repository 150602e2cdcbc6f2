"""For how long something has gone wrong."""

from __future__ import annotations

from collections.abc import Callable


class Failing:
    """From the first failure up to the last one, with no success between them."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """``clock`` gives seconds that only grow."""
        self.seconds = 0.0
        self._clock = clock
        self._since: float | None = None

    def failed(self) -> None:
        now = self._clock()
        if self._since is None:
            self._since = now
        self.seconds = now - self._since

    def over(self) -> None:
        """It went well, or is begun anew."""
        self._since = None
        self.seconds = 0.0
