"""The query process: maps a store read-only and serves look-ups and long polls.

Threads: the event loop parses requests and waits. Look-ups, which may wait for the disk, run in a
bounded pool and return encoded bytes. One thread waits for arrivals.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from typing import Final, TypeVar

from prometheus_client import Gauge
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.types import Scope

from mqstore.query.committed_offsets import CommittedOffsets
from mqstore.query.damage_reports import DamageReports
from mqstore.query.lag_metrics import LagMetrics, LagSource
from mqstore.query.local_writer import LocalWriter
from mqstore.query.opened_store import OpenedStore
from mqstore.query.read_waits import ReadWaits
from mqstore.query.store_watch import StoreWatch
from mqstore.query.writer_state import WriterHeader, WriterWatch
from mqstore.service import logs, settings_routes
from mqstore.service.app import Api
from mqstore.service.arrivals import ReaderArrivals
from mqstore.service.auth import OwnToken
from mqstore.service.configuration_error import ConfigurationError
from mqstore.service.expressions import Compilations
from mqstore.service.health import Health
from mqstore.service.http import Front
from mqstore.service.message_bodies import BodyForm, InflateBounds
from mqstore.service.metrics import OTHER_TOPICS, RocketmqNames, Traffic
from mqstore.service.problems import BAD_PARAMETER, OVERLOADED, STORE_NOT_READY, Problem
from mqstore.service.settings import Settings
from mqstore.service.shards import Shards
from mqstore.storage import StoreReader, topic_names
from mqstore.storage.admin import ConsumerOffsets, FilterData, TableSnapshot
from mqstore.storage.errors import FilterError, QueueUnknown, StoreNotOpen
from mqstore.storage.filter import Filter, compile_expression
from mqstore.storage.formats import StoreFormat
from mqstore.storage.host import ServiceHandle, production_seams
from mqstore.storage.reads import (
    GroupLags,
    Lookups,
    MessageTraces,
    PullFilter,
    RetryFilter,
    SqlFilter,
    parse_tags,
)
from mqstore.storage.topic_names import DLQ_PREFIX, RETRY_PREFIX, returning_group
from mqstore.wire.messages import BodyParameters
from mqstore.wire.operation import Role

log = logs.get(__name__)

OPEN_RETRY_S: Final = 0.05
"""Seconds between two attempts to open a store that no writer has prepared yet."""
OPEN_PATIENCE_S: Final = 5.0
"""Seconds for which opening an unreadable directory is retried. A writer on the same machine
reports the cause more exactly."""

INFLATED_PER_ANSWER: Final = 4
"""Maximum size of all inflated bodies of a reply beyond the first, in units of maxInflatedSize."""

DESCRIPTION: Final = """\
Finds messages in a RocketMQ store directory: by id, by key, by queue and offset, by time. \
Messages are stored at the store-writer service (port 8081 by default).

Begin with `GET /v1/topics/orders/messages?key=order-1`, or read a queue from its first message \
with `GET /v1/topics/orders/queues/0/messages`. A damaged message is reported as an error of its \
own, never as a wrong body. The header `X-Mqstore-Writer` of each reply says whether a writer is \
`alive`, `recovering` the store, `unresponsive` (it has stood still for 5 s), or `down`. While it \
is down or unresponsive, stored messages are served and none arrives; a replica whose store-writer \
is unresponsive serves none, as another one leads.

With several shards any of them serves a request for all: it looks up a key, a time or a group on \
each shard, and `shards` names those that did not reply. A queue belongs to one shard: `?shard=`.
"""
TAGS: Final = {
    "messages": "Single messages, by offset message id, unique key or key.",
    "segments": "The log itself, by byte range, for backups and jobs.",
    "groups": "Lag of consumer groups.",
    "access": "What a token allows.",
    **settings_routes.TAG,
    "queues": "Queues read in order, from an offset or a time; a pull may wait for messages.",
}

T = TypeVar("T")

_SUCCEEDED: Final = (
    "the store-writer of this replica has not responded for 5 s, so another one may lead the shard "
    "and have newer messages; send the request again, to the shard's address"
)


class QueryService:
    """The ``Service`` of the query process (see ``mqstore.service.server``).

    Used on the event loop; ``ArrivalSource`` methods and look-ups run in other threads.
    """

    name = "query"

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.address = ""
        self.health = Health()
        self.health.not_ready_reason = self._not_ready_reason
        self.health.progress = lambda: {"detail": self._waiting_for}
        self._loop = asyncio.get_running_loop()
        self.failure: asyncio.Future[BaseException] = self._loop.create_future()
        self._seams = production_seams()
        self._root = settings.store.absolute()
        self._store: OpenedStore | None = None
        self._opening: asyncio.Task[None] | None = None
        """Opens the store that replaced another one."""
        self._waiting_for = ""
        self._shutting_down = False
        self._pool = ThreadPoolExecutor(settings.query_threads, thread_name_prefix="lookup")
        self._pending = 0
        self._watch: ServiceHandle | None = None
        # Held until the event loop has the result, so that threads do not run ahead of its replies.
        self._running = asyncio.Semaphore(settings.query_threads)
        self.writer = WriterWatch(self._open_reader)
        self.local_writer = LocalWriter(settings, self._root, self._seams.files)
        self.own_token = OwnToken(settings.tokens)
        self.committed_offsets = CommittedOffsets(self.local_writer, self.own_token)
        self._damage = DamageReports(self.local_writer, self.own_token)
        self._reporting: asyncio.Task[None] | None = None
        self.inflate_bounds = InflateBounds.of(settings)
        self.compilations = Compilations()
        self.arrivals = ReaderArrivals(self, self._loop)
        self.shards = Shards(settings, lambda entry: entry.query_url)
        self.api = Api(
            settings,
            self.health,
            title="mqstore query",
            description=DESCRIPTION,
            tags=TAGS,
            shards=self.shards,
        )
        self.api.app.add_middleware(WriterHeader, watch=self.writer)
        waits = ReadWaits(self._readable_end, settings.shard, self.api.limits.polls)
        self.api.await_condition = partial(self._await_condition, waits)
        self.traffic = Traffic(settings.metrics_topics_max, OTHER_TOPICS)
        """Counts the messages and bytes that pulls returned."""
        self.api.metrics.registry.register(_TrafficOut(self.api.metrics.rocketmq, self.traffic))
        self.lag_metrics = self._make_lag_metrics()
        self.api.metrics.registry.register(self.lag_metrics)
        self._replacements = _ReplacementCounter()
        self.api.metrics.registry.register(self._replacements)
        Gauge(
            "mqstore_open_polls",
            "Long polls that wait for messages.",
            registry=self.api.metrics.registry,
        ).set_function(lambda: len(self.arrivals))

    @cached_property
    def front(self) -> Front:
        """The HTTP front, made on first use. Use it after all routes were added to ``api``."""
        return self.api.front()

    @property
    def store(self) -> OpenedStore:
        """The opened store. Raises Problem (503) while there is none, and while another replica
        may have newer messages because the writer of this one stands still.

        A caller that keeps it over an ``await`` calls ``require_current`` before it replies. A
        look-up that is given to ``run`` reads this property when it runs.
        """
        if self._store is None:
            self.health.require_started()
            raise Problem(STORE_NOT_READY, self._waiting_for or "the store is not open")
        if self.writer.is_succeeded:
            raise Problem(STORE_NOT_READY, _SUCCEEDED, extra={"state": "unresponsive"})
        return self._store

    def require_current(self, store: OpenedStore) -> None:
        """Raises Problem (503) if the store was replaced. Call it between look-up and reply."""
        if self._store is store and (why := store.why_replaced) is not None:
            self._replace(store, why)
        if self._store is not store:
            detail = f"the store in {self._root} was replaced while it was read; try again"
            raise Problem(STORE_NOT_READY, detail, extra={"state": "replaced"})

    @property
    def reader(self) -> StoreReader:
        """The reader of ``store``. Raises Problem (503) while no store is open."""
        return self.store.reader

    @property
    def lookups(self) -> Lookups:
        """The look-ups of ``store``. Raises Problem (503) while no store is open."""
        return self.store.reader.lookups

    async def _await_condition(self, waits: ReadWaits, scope: Scope) -> None:
        self.api.auth.check(scope["headers"], Role.CONSUME)
        await waits.wait(scope)

    def _readable_end(self) -> int:
        """Return the end of what is readable in every way. Raises Problem (503) without store."""
        return self.reader.state.dispatched_offset

    def _open_reader(self) -> StoreReader | None:
        store = self._store
        return None if store is None else store.reader

    async def run(self, lookup: Callable[[], T]) -> T:
        """Run a look-up in the pool. Raises Problem (503) when too many are pending."""
        if self._pending >= self.settings.max_pending_queries:
            raise Problem(OVERLOADED, "too many look-ups are running")
        self._pending += 1
        try:
            return await self.run_admitted(lookup)
        finally:
            self._pending -= 1

    async def run_admitted(self, lookup: Callable[[], T]) -> T:
        """Run a look-up of an admitted request in the pool.

        Raises Problem (503) for a replaced store. The limit on pending look-ups does not apply,
        since thousands of polls may wake at once.
        """
        store = self.store
        async with self._running:
            try:
                return await self._loop.run_in_executor(self._pool, lookup)
            finally:
                self.require_current(
                    store
                )  # an error may also come from the files of a replaced store

    def body_form(self, shown: BodyParameters) -> BodyForm:
        """Return the form of bodies that a request selects, within the limits of the settings."""
        bounds = self.inflate_bounds if shown.inflate else None
        return BodyForm(shown.body, shown.body_max, bounds)

    def reply_bytes_max(self, *, inflate: bool) -> int:
        """Return the maximum bytes of records in a reply beyond the first record.

        It is smaller for inflated bodies, since each may become many bytes.
        """
        most = self.settings.max_answer_bytes
        if not inflate:
            return most
        bounds = self.inflate_bounds
        return max(1, min(most, INFLATED_PER_ANSWER * bounds.size_max // bounds.ratio_max))

    async def start(self) -> None:
        """Wait until a writer has prepared the store, then map it.

        Raises ConfigurationError, StoreNotOpen.
        """
        self.shards.start()
        self._reporting = self._loop.create_task(self._damage.run())
        await self._open()
        self.arrivals.start()
        watch = StoreWatch(self._open_reader, self._note_replaced, self._observe_writer)
        self._watch = self._seams.scheduler.start(watch, self._note_failure)

    async def _open(self) -> None:
        patience_ends = self._loop.time() + OPEN_PATIENCE_S
        while self._store is None and not self._shutting_down:
            try:
                self._store = await asyncio.to_thread(
                    OpenedStore.open, self._root, self._seams, self._damage.note
                )
            except StoreNotOpen as error:
                if error.state != "absent":
                    raise
                await self._pause_before_retry(error)
            except OSError as error:
                if self._loop.time() > patience_ends:
                    raise ConfigurationError(f"{self._root} cannot be read ({error})") from error
                await self._pause_before_retry(error)

    def _observe_writer(self, now: float) -> None:
        """Look whether the writer moves; end long polls once another replica leads. Thread-safe."""
        was_succeeded = self.writer.is_succeeded
        self.writer.observe(now)
        if self.writer.is_succeeded and not was_succeeded:
            self._loop.call_soon_threadsafe(self.arrivals.wake)

    def _note_replaced(self, reader: StoreReader) -> None:
        """Schedule a check whether a reader's store was replaced. Thread-safe."""
        self._loop.call_soon_threadsafe(self._check_replaced, reader)

    def _check_replaced(self, reader: StoreReader) -> None:
        store = self._store
        if store is not None and store.reader is reader and (why := store.why_replaced) is not None:
            self._replace(store, why)

    def _replace(self, store: OpenedStore, why: str) -> None:
        """Close a store that is no longer at its path, and open the one that is."""
        log.error("the store was replaced; opening it again", store_id=store.id, why=why)
        self._store = None
        self._damage.forget()
        self._waiting_for = (
            f"the store in {self._root} was replaced ({why}); it is being opened again"
        )
        self._replacements.count += 1
        self.lag_metrics.forget()
        self.arrivals.wake()  # offsets that long polls wait for mean nothing in another store
        self._opening = self._loop.create_task(self._open_replacement(store))

    async def _open_replacement(self, before: OpenedStore) -> None:
        """Close a replaced store and open its replacement. Ends the process if that fails."""
        await asyncio.to_thread(before.reader.close)
        try:
            await self._open()
        except Exception as error:
            log.error("the store that replaced the other cannot be opened", error=str(error))
            self._fail(error)
            return
        if self._store is not None:
            log.warning("the store was opened again", store_id=self._store.id)

    async def _pause_before_retry(self, why: Exception) -> None:
        self._waiting_for = str(why)
        await asyncio.sleep(OPEN_RETRY_S)

    async def retire(self) -> None:
        """Do nothing: this service hands over no work."""

    def interrupt(self) -> None:
        """End long polls and attempts to open, because the service is shutting down."""
        self._shutting_down = True
        self.arrivals.interrupt()

    async def stop(self) -> None:
        """Stop all tasks and threads, and close the store."""
        self.compilations.stop()
        await self.shards.stop()
        if self._reporting is not None:
            self._reporting.cancel()
            await asyncio.wait({self._reporting})
        await self.local_writer.close()
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self.arrivals.stop()
        if self._watch is not None:
            self._watch.stop()
        self._pool.shutdown(cancel_futures=True)
        if self._store is not None:
            self._store.reader.close()

    def _note_failure(self, error: BaseException) -> None:
        """Note a failure that ends the process. Thread-safe."""
        self._loop.call_soon_threadsafe(self._fail, error)

    def _fail(self, error: BaseException) -> None:
        if not self.failure.done():
            self.failure.set_result(error)

    async def compile_filter(
        self, topic: str, tags: str | None, sql: str | None, client: str
    ) -> PullFilter | None:
        """Return the filter of the requested messages, None for all messages.

        ``client`` is the address whose share of compilations the expression counts for. Raises
        Problem (400, 429, 503), FilterError.
        """
        if tags is not None and sql is not None:
            raise Problem(BAD_PARAMETER, "give tags or sql, not both")
        by_tags = parse_tags(tags or "")
        by_sql = None
        if sql is not None:
            store_format = self.reader.format.rocketmq_format
            by_sql = SqlFilter(await self.compilations.compile(sql, store_format, client))
        if self.settings.filter_support_retry and topic.startswith(RETRY_PREFIX):
            group = returning_group(topic) or ""
            return RetryFilter(by_tags, lambda real: self._subscription_filter(real, group))
        return by_tags if by_sql is None else by_sql

    def _subscription_filter(self, topic: str, group: str) -> Filter | None:
        """Return the filter of a group's current or recent subscription, None for all messages.

        Called by look-ups, in the pool.
        """
        found = self.store.filters.now().table.get(topic, group)
        if found is None:
            return None
        try:
            return compile_expression(found.expression, self.reader.format.rocketmq_format)
        except FilterError:
            return None  # a broker does not filter by what it cannot compile

    def group_offsets(self) -> TableSnapshot[ConsumerOffsets]:
        """Return the committed offsets of groups, as they were last saved."""
        return self.store.offsets.now()

    def group_lags(self, offsets: ConsumerOffsets) -> GroupLags:
        """Return the lags of groups at the given offsets."""
        return self.store.group_lags(offsets)

    def subscriptions(self, topic: str) -> list[FilterData]:
        """Return the current and recent subscriptions of all groups to a topic, as last saved."""
        return self.store.filters.now().table.of_topic(topic)

    def traces(self, offsets: ConsumerOffsets) -> MessageTraces:
        """Return the traces of messages, at the given offsets of groups."""
        store = self.store
        delays, names = store.delays.now().table, store.topics.names
        return MessageTraces(store.reader.lookups, store.reader.places, offsets, delays, names)

    def now_ms(self) -> int:
        """Return the current Unix time in ms."""
        return self._seams.clock.now_ms()

    # ArrivalSource --------------------------------------------------------------------------

    def arrival_count(self) -> int:
        """See ``ArrivalSource``; 0 while no store is open."""
        reader = self._open_reader()
        return 0 if reader is None else reader.state.arrivals

    def wait_for_arrival(self, seen: int, timeout_s: float) -> None:
        """See ``ArrivalSource``; returns at once while no store is open."""
        reader = self._open_reader()
        if reader is not None:
            reader.wait_for_arrival(seen, timeout_s)

    def end_of(self, topic: str, queue_id: int) -> int:
        """See ``ArrivalSource``; 0 for an unknown queue, and while no store is open."""
        reader = self._open_reader()
        try:
            return 0 if reader is None else reader.lookups.queue_range(topic, queue_id).max_offset
        except (QueueUnknown, StoreNotOpen):
            return 0

    def _make_lag_metrics(self) -> LagMetrics:
        def read_lags() -> LagSource | None:
            store = self._store
            if store is None:
                return None
            offsets = store.offsets.now().table
            groups, topics = offsets.groups(), set(store.topics.names())
            dead = [group for group in groups if DLQ_PREFIX + group in topics]
            return LagSource(store.group_lags(offsets), groups, dead)

        names, most = self.api.metrics.rocketmq, self.settings.metrics_lags_max
        return LagMetrics(names, most, read_lags, self.now_ms)

    def _not_ready_reason(self) -> str | None:
        store = self._store
        if store is None:
            return self._waiting_for or "the store is not open"
        if self.writer.is_succeeded:
            return _SUCCEEDED
        try:
            store.reader.snapshot()
        except StoreNotOpen as error:
            return str(error)
        return self.shards.joining.reason


class _ReplacementCounter(Collector):
    """Counts how often the store was replaced."""

    def __init__(self) -> None:
        self.count = 0

    def collect(self) -> Iterable[Metric]:
        yield CounterMetricFamily(
            "mqstore_store_replaced",
            "Times that the store's files were replaced and opened again; requests meanwhile are "
            "refused (store-not-ready).",
            value=self.count,
        )


class _TrafficOut(Collector):
    def __init__(self, names: RocketmqNames, traffic: Traffic) -> None:
        self._names = names
        self._traffic = traffic

    def collect(self) -> Iterable[Metric]:
        is_system = partial(topic_names.is_system_topic, store_format=StoreFormat.V5_X)
        return self._names.traffic("out", self._traffic, "consumer_group", is_system)
