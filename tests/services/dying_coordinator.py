"""A coordinator that kills itself at a step's n-th boundary: before or after a call of its log.

``python -m tests.services.dying_coordinator`` with DIE_AT=n.
"""

from __future__ import annotations

import os
import signal

from mqstore.coordinator import shards
from mqstore.coordinator.__main__ import build
from mqstore.coordinator.http_log import HttpLog
from mqstore.coordinator.log import QueueOffsets, Standing
from mqstore.coordinator.records import Append, Keyed, Page, Placement
from mqstore.coordinator.service import CoordinatorService
from mqstore.service.server import main


class DyingLog(HttpLog):
    """Counts boundaries down."""

    left = int(os.environ["DIE_AT"])

    def take_over(self) -> Standing:
        self._boundary()
        found = super().take_over()
        self._boundary()
        return found

    async def append_soon(self, append: Append) -> list[Placement]:
        self._boundary()
        found = await super().append_soon(append)
        self._boundary()
        return found

    def read(self, topic: str, queue_id: int, offset: int, count: int) -> Page:
        self._boundary()
        return super().read(topic, queue_id, offset, count)

    def by_key(self, topic: str, key: str) -> Keyed:
        self._boundary()
        return super().by_key(topic, key)

    def save_offsets(self, offsets: QueueOffsets) -> None:
        self._boundary()
        super().save_offsets(offsets)
        self._boundary()

    def _boundary(self) -> None:
        self.left -= 1
        if self.left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    vars(shards)["HttpLog"] = DyingLog
    main(build, CoordinatorService.name, lambda settings: settings.coordinator_port)
