"""The transaction coordinator's process.

Threads: the event loop parses, waits, and takes what needs nothing but an append (``lane``); for
each shard one thread leads (``worker``) and does all else with the shard's store-writer and query;
another one sees to it that they can (``lead_watch``); with a Lease yet another one stands for
election.
"""

from __future__ import annotations

import asyncio
import time
from functools import cached_property
from typing import Final

from mqstore.coordinator.asking import Asker
from mqstore.coordinator.callbacks import Caller
from mqstore.coordinator.elections import leadership_of, own_url
from mqstore.coordinator.forwarding import Forwarder
from mqstore.coordinator.lead_watch import LeadWatch
from mqstore.coordinator.metrics import TransactionMetrics
from mqstore.coordinator.producers import Producers
from mqstore.coordinator.reporting import reporter_of
from mqstore.coordinator.shards import shards_of
from mqstore.service.app import Api
from mqstore.service.health import Health
from mqstore.service.http import Front
from mqstore.service.settings import Settings
from mqstore.service.upstream import UpstreamTls
from mqstore.storage.codec.message_id import UniqueKeys
from mqstore.storage.system.threads import production_seams

DESCRIPTION: Final = """\
Two-phase messages: begin stores a half message that nobody sees, commit makes it visible exactly \
once, rollback never. A producer that went silent is asked what it decided.

Begin with `POST /v1/transactions`, then `POST /v1/transactions/{id}:commit`.
"""
TAGS: Final = {
    "transactions": "Begin, commit, roll back; what is pending, and how each came to its end.",
    "checks": "Producers ask here which of their transactions wait for an answer.",
}


class CoordinatorService:
    """As ``mqstore.service.server.Service``."""

    name = "transaction-coordinator"

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.address = ""
        self.health = Health()
        self.failure: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        self.keys = UniqueKeys(production_seams())
        self._upstream = UpstreamTls.of(settings)
        self._following: asyncio.Task[None] | None = None
        tls = None if self._upstream is None else self._upstream.context
        self.leadership = leadership_of(settings)
        self.forwarder = Forwarder(self.leadership, own_url(settings), tls)
        self.shards = shards_of(settings, self.leadership, self.keys, tls, self._fail)
        self._reporter = reporter_of(settings, self.shards, tls)
        workers = [shard.worker for shard in self.shards]
        self.lead_watch = LeadWatch(self.leadership, workers, settings.lead_patience_s, self._fail)
        self.producers = Producers(time.monotonic)
        self.asker = Asker(self.shards, self.producers, Caller(settings))
        self.health.not_ready_reason = self._not_ready
        self.interrupted = asyncio.Event()
        self.api = Api(
            settings,
            self.health,
            title="mqstore transaction-coordinator",
            description=DESCRIPTION,
            tags=TAGS,
        )
        metrics = self.api.metrics
        TransactionMetrics(
            *(metrics.registry, metrics.rocketmq, settings.metrics_topics_max),
            *(self.shards, lambda: self.forwarder.leads, lambda: self.lead_watch.given_up),
        )

    @cached_property
    def front(self) -> Front:
        """Made once all routes are in ``api``."""
        return self.api.front()

    async def start(self) -> None:
        if self._upstream is not None:
            self._following = asyncio.get_running_loop().create_task(self._upstream.follow())
        self.leadership.start()
        self.shards.start()
        self.lead_watch.start()
        self.forwarder.start()
        if self._reporter is not None:
            self._reporter.start(lambda: self.forwarder.leads)
        self.asker.start()

    def interrupt(self) -> None:
        self.interrupted.set()

    async def stop(self) -> None:
        if self._following is not None:
            self._following.cancel()
        if self._reporter is not None:
            await self._reporter.stop()
        await self.asker.stop()
        await asyncio.to_thread(self.lead_watch.stop)
        await asyncio.to_thread(self.shards.stop)
        self.shards.disconnect()
        await asyncio.to_thread(self.leadership.stop)
        await self.forwarder.stop()

    def _fail(self, error: BaseException) -> None:
        """Nobody is begun or decided any more: the process ends, and the next one reads again."""
        if not self.failure.done():
            self.failure.set_result(error)

    def _not_ready(self) -> str | None:
        return self.shards.trouble if self.forwarder.leads else self.forwarder.trouble
