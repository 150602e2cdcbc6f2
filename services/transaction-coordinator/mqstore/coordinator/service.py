"""The transaction coordinator's process: a relay without state of its own.

Everything happens on the event loop. The shards' store-writers keep transactions, registered
producers and the leases of checks, so any number of coordinators may run beside each other.
"""

from __future__ import annotations

import asyncio
from functools import cached_property
from typing import Final

from mqstore.coordinator.callbacks import Caller
from mqstore.coordinator.checking import Checker
from mqstore.coordinator.checks import Checks
from mqstore.coordinator.hot_routes import HotRoutes
from mqstore.coordinator.metrics import CoordinatorMetrics
from mqstore.coordinator.producer_routes import ProducerRoutes
from mqstore.coordinator.relay import Relay
from mqstore.coordinator.reporting import reporter_of
from mqstore.coordinator.routes import Routes
from mqstore.coordinator.shards import shards_of
from mqstore.coordinator.targets import Allowed
from mqstore.service import settings_routes
from mqstore.service.app import Api
from mqstore.service.health import Health
from mqstore.service.http import Front
from mqstore.service.settings import Settings
from mqstore.service.upstream import UpstreamTls

DESCRIPTION: Final = """\
Two-phase messages: begin stores a half message that no consumer sees, commit makes it visible \
exactly once, rollback never. The coordinator checks with a producer that has not decided.

Begin with `POST /v1/transactions`, then `POST /v1/transactions/{id}:commit`.
"""
TAGS: Final = {
    "transactions": "Begin, commit, roll back; what is pending, and how each came to its end.",
    "checks": "Producers take the checks of their undecided transactions here.",
    **settings_routes.TAG,
}


class CoordinatorService:
    """As ``mqstore.service.server.Service``."""

    name = "transaction-coordinator"

    def __init__(self, settings: Settings) -> None:
        """Raises ConfigurationError."""
        self.address = ""
        self.health = Health()
        self.failure: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        self._upstream = UpstreamTls.of(settings)
        self._following: asyncio.Task[None] | None = None
        tls = None if self._upstream is None else self._upstream.context
        allowed = Allowed.of(settings)
        self.shards = shards_of(settings, tls)
        self._reporter = reporter_of(settings, self.shards, tls)
        caller = Caller(settings)
        self.checker = Checker(self.shards, allowed, caller, settings.callback_timeout_s)
        self.health.not_ready_reason = self._not_ready
        self.health.remark = self._remark
        self.interrupted = asyncio.Event()
        self.api = Api(
            settings,
            self.health,
            title="mqstore transaction-coordinator",
            description=DESCRIPTION,
            tags=TAGS,
        )
        CoordinatorMetrics(self.api.metrics.registry, self.shards, self.checker.counts)
        relay, checks = Relay(self.shards), Checks(self.shards, self.interrupted)
        HotRoutes(relay).add(self.api)
        Routes(self.shards, relay, checks, settings.shard_timeout_s).add(self.api)
        ProducerRoutes(self.shards, allowed).add(self.api)
        settings_routes.SettingsRoutes(settings).add(self.api)

    @cached_property
    def front(self) -> Front:
        """Made once all routes are in ``api``."""
        return self.api.front()

    async def start(self) -> None:
        """Start probing the shards, following their events and sending checks."""
        if self._upstream is not None:
            self._following = asyncio.get_running_loop().create_task(self._upstream.watch())
        self.shards.start()
        if self._reporter is not None:
            self._reporter.start()
        self.checker.start()

    async def retire(self) -> None:
        """Do nothing: this service hands over no work."""

    def interrupt(self) -> None:
        """Let requests that wait for checks return at once."""
        self.interrupted.set()

    async def stop(self) -> None:
        """End the background tasks and close the connections to shards."""
        if self._following is not None:
            self._following.cancel()
        if self._reporter is not None:
            await self._reporter.stop()
        await self.checker.stop()
        await self.shards.stop()

    def _not_ready(self) -> str | None:
        troubles = self.shards.troubles
        return troubles[0] if len(troubles) == len(self.shards) else None

    def _remark(self) -> str | None:
        """The shards that cannot be used."""
        return "; ".join(self.shards.troubles) or None
