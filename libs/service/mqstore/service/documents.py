"""Documents that take long to render and need no token: rendered off the event loop."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable

from starlette.concurrency import run_in_threadpool


class Document:
    """A document that a worker thread renders, once for concurrent requests, at a limited rate.

    Above the rate the last rendering is returned. Used on one event loop only."""

    def __init__(
        self,
        render: Callable[[], bytes],
        *,
        interval_s: float = math.inf,
        burst: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``burst`` renderings may follow one another; one more is allowed each ``interval_s``."""
        self._render = render
        self._interval_s = interval_s
        self._burst = burst
        self._clock = clock
        self._allowed = burst - 1.0
        self._counted_at = clock()
        self._rendering: asyncio.Future[bytes] | None = None

    async def get(self) -> bytes:
        """The document. Raises the error of the rendering; the next request then renders again."""
        rendering = self._rendering
        if rendering is None or (rendering.done() and self._may_render_again(rendering)):
            rendering = self._rendering = asyncio.ensure_future(run_in_threadpool(self._render))
        return await asyncio.shield(rendering)

    def _may_render_again(self, last: asyncio.Future[bytes]) -> bool:
        if last.cancelled() or last.exception() is not None:
            return True
        now = self._clock()
        allowed = self._allowed + (now - self._counted_at) / self._interval_s
        self._allowed, self._counted_at = min(allowed, self._burst), now
        if self._allowed < 1:
            return False
        self._allowed -= 1
        return True
