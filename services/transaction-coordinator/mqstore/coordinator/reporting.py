"""Writes the events of the shards' stores as Events of Kubernetes on their pods.

Shards have no right to its API, so each coordinator follows their events and writes. It remembers
nothing: an Event's name and its count follow from the store's events, so an Event that another
coordinator wrote is there already. Events older than ``AGE_MAX_MS`` are passed over.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import ssl
import time
from collections.abc import Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from mqstore.client import AsyncClient, ClientError, EventUnknown, ProblemError, StoreEvent
from mqstore.coordinator.pod_notes import Note, Notes, process_of
from mqstore.coordinator.shards import Shards
from mqstore.service import logs
from mqstore.service.auth import OwnToken
from mqstore.service.settings import Settings

if TYPE_CHECKING:  # a large package, for clusters only
    from mqstore.coordinator.kube_events import PodEvents

LOOK_S: Final = 1.0
"""Seconds between two attempts."""
AGE_MAX_MS: Final = 1_800_000
"""Age beyond which an event is not written; an API server keeps Events for an hour."""
BURST: Final = 20
"""New Events of a shard at once; further ones come one in ``REFILL_S``."""
REFILL_S: Final = 15.0

log = logs.get(__name__)


class Rate:
    """Limits how often Events are written: a bucket of tokens. One thread at a time."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._left = float(BURST)
        self._at = clock()

    def allows(self) -> bool:
        """Take a token; False where none is left."""
        now = self._clock()
        self._left = min(BURST, self._left + (now - self._at) / REFILL_S)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True

    def give_back(self) -> None:
        """Return a token that was not used."""
        self._left += 1


class ShardReporter:
    """Follows one shard's events and writes those that operators must know."""

    def __init__(self, ordinal: int, events: PodEvents, rate: Rate) -> None:
        self._ordinal = ordinal
        self._events = events
        self._rate = rate
        self._notes = Notes()
        self._process = ""
        self._pod: Any = None
        self._after: str | None = None

    async def follow(self, client: AsyncClient) -> None:
        """Follow the shard's events until the task is cancelled."""
        while True:
            try:
                stream = client.events(after=self._after, patience_s=math.inf)
                async with contextlib.aclosing(stream) as events:
                    async for event in events:
                        await self._report(client, event)
                        self._after = event.id  # reported twice, it would count twice
            except EventUnknown as error:
                log.warning("an event is passed over", shard=self._ordinal, why=str(error))
                self._after = error.after or self._after
            except ClientError as error:
                log.debug("a shard's events cannot be had", shard=self._ordinal, why=str(error))
            await asyncio.sleep(LOOK_S)

    async def _report(self, client: AsyncClient, event: StoreEvent) -> None:
        note = self._note(event)
        if note is None or _is_old(note.last_ms) or not self._rate.allows():
            return
        while not _is_old(note.last_ms):
            if await self._is_settled(client, event, note):
                return
            await asyncio.sleep(LOOK_S)

    def _note(self, event: StoreEvent) -> Note | None:
        """The event's note; None also for data that this release does not know."""
        try:
            return self._notes.take(event)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            details = {"shard": self._ordinal, "kind": event.kind, "why": repr(error)}
            log.warning("an event is passed over", **details)
            return None

    async def _is_settled(self, client: AsyncClient, event: StoreEvent, note: Note) -> bool:
        from mqstore.coordinator.kube_events import NotWritten

        try:
            if (process := process_of(event)) != self._process:
                leader = await _elected_pod(client)
                self._pod = await asyncio.to_thread(self._events.pod_of, self._ordinal, leader)
                self._process = process
            is_new = await asyncio.to_thread(self._events.write, self._pod, note)
        except ClientError as error:
            log.debug("a shard's leader is not known", shard=self._ordinal, why=str(error))
            return False
        except NotWritten as error:
            details = {"shard": self._ordinal, "reason": note.reason, "why": str(error)}
            log.warning("an Event was not written", is_final=error.is_final, **details)
            return error.is_final
        if not is_new:  # another coordinator wrote it: a replay leaves the burst to what is new
            self._rate.give_back()
        return True


class Reporter:
    """Follows the events of all shards. Used on the event loop only."""

    def __init__(
        self, shards: Shards, settings: Settings, tls: ssl.SSLContext | None, events: PodEvents
    ) -> None:
        token = OwnToken(settings.tokens)
        self._clients = {
            shard.ordinal: AsyncClient(shard.url, token=token, tls=tls) for shard in shards
        }
        self._events = events
        self._following: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start one task for each shard."""
        loop = asyncio.get_running_loop()
        for ordinal, client in self._clients.items():
            reporter = ShardReporter(ordinal, self._events, Rate())
            self._following.append(loop.create_task(reporter.follow(client)))

    async def stop(self) -> None:
        """Cancel the tasks and close the connections."""
        for task in self._following:
            task.cancel()
        await asyncio.gather(*self._following, return_exceptions=True)
        for client in self._clients.values():
            await client.close()


def reporter_of(settings: Settings, shards: Shards, tls: ssl.SSLContext | None) -> Reporter | None:
    """The reporter; None unless ``shardStatefulSet`` is set. Raises ConfigurationError without a
    cluster."""
    if settings.shard_stateful_set is None:
        return None
    from mqstore.coordinator.kube_events import PodEvents

    events = PodEvents(settings.shard_stateful_set, settings.shard_namespace)
    return Reporter(shards, settings, tls, events)


async def _elected_pod(client: AsyncClient) -> str | None:
    """The pod of the shard's elected leader; None where none is elected. Raises ClientError."""
    try:
        election = (await client.replication()).election
    except ProblemError as error:
        if error.status != HTTPStatus.NOT_FOUND:  # an earlier release has no replicas
            raise
        return None
    return None if election is None else election.name.partition("/")[0]


def _is_old(ms: int) -> bool:
    return time.time_ns() // 1_000_000 - ms > AGE_MAX_MS
