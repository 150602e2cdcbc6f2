"""The transaction coordinator's process.

Threads: the event loop parses and waits; one thread leads (``worker``), it alone talks to
store-writer and query.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from functools import cached_property
from typing import Final, TypeVar

from prometheus_client import Gauge

from mqstore.client import Client
from mqstore.coordinator.coordinator import Coordinator
from mqstore.coordinator.elections import leadership_of
from mqstore.coordinator.http_log import HttpLog
from mqstore.coordinator.schedule import Rules
from mqstore.coordinator.worker import Worker
from mqstore.service.app import Api
from mqstore.service.health import Health
from mqstore.service.http import Front
from mqstore.service.settings import Settings
from mqstore.storage.codec.message_id import UniqueKeys
from mqstore.storage.system.threads import production_seams

HOUR_MS: Final = 3_600_000
DESCRIPTION: Final = """\
Two-phase messages: begin stores a half message that nobody sees, commit makes it visible exactly \
once, rollback never. A producer that went silent is asked what it decided.

Begin with `POST /v1/transactions`, then `POST /v1/transactions/{id}:commit`.
"""
TAGS: Final = {
    "transactions": "Begin, commit, roll back; what is pending, and how each came to its end.",
    "checks": "Producers ask here which of their transactions wait for an answer.",
}

T = TypeVar("T")


class CoordinatorService:
    """As ``mqstore.service.server.Service``."""

    name = "transaction-coordinator"

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.health = Health()
        self.failure: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        seams = production_seams()
        self.keys = UniqueKeys(seams)
        token = next(iter(settings.tokens().get("system", ())), None)
        self.client = Client(settings.writer_url, settings.query_url, token=token)
        reserved_ms = settings.store_config.file_reserved_time * HOUR_MS
        self.leadership = leadership_of(settings)
        next_epoch = self.leadership.next_epoch
        log = HttpLog(self.client, settings.store_host, reserved_ms, next_epoch)
        rules = Rules(
            settings.transaction_time_out,
            settings.transaction_check_interval,
            settings.transaction_check_max,
        )
        self.coordinator = Coordinator(log, seams.clock, self.keys, rules)
        self.worker = Worker(self.coordinator, self.leadership)
        self.health.not_ready_reason = lambda: self.worker.trouble
        self.interrupted = asyncio.Event()
        self.api = Api(
            settings,
            self.health,
            title="mqstore transaction-coordinator",
            description=DESCRIPTION,
            tags=TAGS,
        )
        Gauge(
            "mqstore_transactions_pending",
            "Transactions without a decision",
            registry=self.api.metrics.registry,
        ).set_function(self._pending)

    @cached_property
    def front(self) -> Front:
        """Made once all routes are in ``api``."""
        return self.api.front()

    async def start(self) -> None:
        self.leadership.start()
        self.worker.start()

    def interrupt(self) -> None:
        self.interrupted.set()

    async def stop(self) -> None:
        await asyncio.to_thread(self.worker.stop)
        self.client.close()
        await asyncio.to_thread(self.leadership.stop)

    async def result(self, asked: Future[T]) -> T:
        """Wait for the worker. Raises CoordinatorError."""
        return await asyncio.wrap_future(asked)

    def _pending(self) -> float:
        return len(self.coordinator.state.pending) if self.coordinator.is_loaded else 0
