"""store-writer's routes: produce (hot), topics, and what the store says of itself."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http import HTTPStatus
from typing import Any, Final

import msgspec

from mqstore.service import idempotency, problems
from mqstore.service.app import Api
from mqstore.service.endpoint import Endpoint, Hot
from mqstore.service.forwarding import ForwardedRequest, was_forwarded
from mqstore.service.http import (
    DeferredReply,
    HotRequest,
    HotResult,
    Prepared,
    Reply,
    problem_of,
    refuse_unknown,
)
from mqstore.service.problems import Problem
from mqstore.storage import MessageStore, topic_names
from mqstore.storage.admin import TopicConfig
from mqstore.storage.errors import (
    FilePending,
    FlushTimeout,
    OriginalsUnread,
    StorageError,
    TopicUnknown,
    UniqueKeyTaken,
)
from mqstore.storage.formats import Host
from mqstore.storage.puts import (
    EncodedBatch,
    Message,
    Originals,
    Put,
    UniqueKeys,
    check_batch_size,
    encode_batch,
    end_of,
    placements_json,
)
from mqstore.storage.settings import FlushDiskType
from mqstore.storage.status import RecoveryReport
from mqstore.wire.idempotency import NAME, other_keys
from mqstore.wire.operations import produce as operations
from mqstore.wire.operations import stores as store_operations
from mqstore.wire.produce import NewMessage
from mqstore.wire.shards import ShardEntry
from mqstore.wire.stores import DelayLevel, DelayLevels, Segment, Segments, Store
from mqstore.writer import produce
from mqstore.writer.event_routes import EventRoutes
from mqstore.writer.expiry_reports import ExpiryReports
from mqstore.writer.group_routes import GroupRoutes
from mqstore.writer.internal_routes import InternalRoutes
from mqstore.writer.key_routing import Parts, divide, divide_json, join
from mqstore.writer.produce import JSON_TYPE
from mqstore.writer.quarantine_routes import QuarantineRoutes
from mqstore.writer.rebuild_routes import IndexRebuildRoutes
from mqstore.writer.retention_routes import RetentionRoutes
from mqstore.writer.scrub_routes import ScrubRoutes
from mqstore.writer.service import WriterService
from mqstore.writer.subscription_routes import SubscriptionRoutes
from mqstore.writer.topic_routes import TopicRoutes
from mqstore.writer.transactions.check_routes import CheckRoutes
from mqstore.writer.transactions.hot_routes import HotRoutes
from mqstore.writer.transactions.routes import TransactionRoutes
from mqstore.writer.write_routes import WriteRoutes

BATCH_TYPE: Final = operations.BATCH_TYPE.encode()
_CREATED: Final = int(HTTPStatus.CREATED)
_SYNC_FLUSH: Final = FlushDiskType.SYNC
_DURABILITIES = {"sync": True, "async": False}
READS_MAX: Final = 200
"""Messages of a request that the event loop reads in the log, as they may have been stored before:
some 1 ms. A thread reads more."""


def add(api: Api, service: WriterService) -> None:
    """Put all routes of store-writer into its interface."""
    producer = Producer(service)
    producer.add(api)
    TopicRoutes(service, service.topics.clear).add(api)
    GroupRoutes(service).add(api)
    SubscriptionRoutes(service).add(api)
    _Inspection(service).add(api)
    WriteRoutes(service).add(api)
    EventRoutes(service).add(api)
    RetentionRoutes(service).add(api)
    HotRoutes(service).add(api)
    TransactionRoutes(service).add(api)
    CheckRoutes(service).add(api)
    InternalRoutes(service).add(api)
    ScrubRoutes(service).add(api)
    QuarantineRoutes(service).add(api)
    ExpiryReports(service).add(api)
    IndexRebuildRoutes(service).add(api)


class _Asked(msgspec.Struct, frozen=True, gc=False):
    """What a request's head asks for."""

    client: Host
    crc32c: int | None
    is_encoded: bool = False
    queue_id: int | None = None
    durability: str | None = None
    has_shard: bool = False
    """Whether the client names the shard: its messages then stay on it, whatever their keys are."""
    idempotency_key: str | None = None

    def is_heavy(self, body: bytes) -> bool:
        """Whether a thread makes messages of a body, and not the event loop."""
        if self.is_encoded and self.idempotency_key is not None:
            return True
        return produce.is_heavy(body, is_json=not self.is_encoded)


class _Batch(msgspec.Struct, frozen=True, gc=False):
    """What one request asks for."""

    messages: list[Message]
    keys: list[str]
    sync: bool
    given: list[str | None] | None = None
    """The keys that the client gave; None when it gave none at all."""
    delayed: bool = False
    """Whether any message goes to another queue first."""
    idempotency_key: str | None = None
    other_keys: Sequence[str] = ()
    """Unique keys of another request under the same Idempotency-Key."""
    originals: Originals | None = None
    """The earlier messages under the same unique keys, as a thread read them."""

    def only(self, numbers: Sequence[int]) -> _Batch:
        """A part of it. The unique keys of its messages alone then tell a duplicate."""
        messages, keys = self.messages, self.keys
        given = self.given or [None] * len(keys)
        return _Batch(
            [messages[each] for each in numbers],
            [keys[each] for each in numbers],
            self.sync,
            [given[each] for each in numbers],
            self.delayed,
        )

    def append_to(self, store: MessageStore, topic: str) -> Put:
        messages, is_batch = self.messages, len(self.messages) > 1
        if is_batch and self.delayed:
            is_batch = False  # DELAY has no effect in a batch
            check_batch_size(messages, store.config.max_message_size)
        if self.given is None:
            return store.append(messages, as_batch=is_batch)
        if self.other_keys and store.once is not None and store.once.knows(topic, self.other_keys):
            raise UniqueKeyTaken(
                f"{NAME} {self.idempotency_key!r} of topic {topic} is that of another "
                "request, with another number of messages; send each request under its own key"
            )
        reads_max = READS_MAX if self.originals is None else None
        return store.append(
            messages,
            self.given,
            as_batch=is_batch,
            originals=self.originals,
            reads_max=reads_max,
        )

    def read_originals(self, store: MessageStore, topic: str) -> _Batch:
        """The same, with ``originals``. Raises UniqueKeyTaken."""
        if store.once is None or self.given is None:
            return self
        found = store.once.originals(topic, self.messages, self.given)
        return msgspec.structs.replace(self, originals=found)


class _EncodedBatch(msgspec.Struct, frozen=True, gc=False):
    """A batch that the kernel puts as it came."""

    batch: EncodedBatch
    keys: list[str]
    sync: bool
    decoded: Callable[[], _Batch]
    """The same, for when it has to be looked at more closely."""
    delayed: bool = False

    @property
    def given(self) -> list[str | None] | None:
        """See ``_Batch.given``."""
        return [key or None for key in self.keys] if any(self.keys) else None

    def append_to(self, store: MessageStore, topic: str) -> Put:
        return store.append(self.batch, self.keys, reads_max=READS_MAX)

    def read_originals(self, store: MessageStore, topic: str) -> _Batch:
        """See ``_Batch.read_originals``."""
        return self.decoded().read_originals(store, topic)


class Producer:
    """``POST /v1/topics/{topic}/messages``: one append under one lock for each request."""

    def __init__(self, service: WriterService) -> None:
        self._service = service
        self._queues = produce.QueueChooser()
        self._unique_keys = UniqueKeys(service.seams)
        self._topics = service.topics
        self._decoding = ThreadPoolExecutor(1, "decode")
        """One thread: the event loop shares the interpreter with one competitor."""

    def add(self, api: Api) -> None:
        Endpoint(operations.PRODUCE, self._answer, Hot(prepare=self._prepare)).add(api)

    async def _answer(self, request: HotRequest) -> Reply:
        return await self._pointing(self._produced(request))

    async def _pointing(self, answering: Coroutine[Any, Any, Reply]) -> Reply:
        """Where there are several shards, a refusal names one that takes messages."""
        if self._service.shards.members.alone:
            return await answering
        try:
            return await answering
        except (Problem, StorageError) as error:
            problem = error if isinstance(error, Problem) else problem_of(error)
            await self._service.elsewhere.point(problem)
            raise problem from error

    async def _produced(self, request: HotRequest) -> Reply:
        service = self._service
        self._require_own(request)
        service.require_puts()
        name = request.params["topic"]
        topic = self._topics.get(name) or await self._look_up(name)
        body = await request.body()
        topic = self._topics.get(name) or await self._look_up(name)  # deleted meanwhile?
        asked = self._asked(request)
        if asked.is_heavy(body):
            decode = partial(self._batch, asked, topic, body)
            batch = await asyncio.get_running_loop().run_in_executor(self._decoding, decode)
        else:
            batch = self._batch(asked, topic, body)
        parts = self._parts(asked, batch)
        if service.key_routing.are_own(parts):
            return await self._done(topic, batch)
        if was_forwarded(request.scope):
            await service.key_routing.require_own(parts, partial(self._is_known, topic, batch))
            return await self._done(topic, batch)
        forwarded = ForwardedRequest.of(request.scope, str(service.shards.own), body)
        is_json = not asked.is_encoded
        return await self._routed(topic, batch, parts, forwarded, is_json=is_json)

    def _prepare(self, request: HotRequest) -> Prepared:
        """A put that needs no look at topics; who is not kept waiting is answered."""
        service, name = self._service, request.params["topic"]
        self._require_own(request)
        asked = self._asked(request)

        def begin(body: bytes, _: Mapping[str, str]) -> HotResult:
            service.require_puts()
            topic = self._topics.get(name)
            if topic is None or asked.is_heavy(body):
                return None
            batch = self._batch(asked, topic, body)
            if not service.key_routing.are_own(self._parts(asked, batch)):
                return None
            try:
                put = self._put(topic, batch)
            except (FilePending, OriginalsUnread):
                # Keeps the queue that was chosen: a new choice might never get its file.
                return _deferred(self._pointing(self._done(topic, batch)))
            if batch.sync or service.commits is not None:
                return _deferred(self._settled(name, put, batch))
            return self._told(put, batch.keys)

        return Prepared(begin, _CREATED)

    async def _done(self, topic: TopicConfig, batch: _Batch | _EncodedBatch) -> Reply:
        files_due, store = self._service.files_due, self._service.store
        try:
            put = await files_due.put(lambda: self._put(topic, batch))
        except OriginalsUnread:
            read = partial(batch.read_originals, store, topic.name)
            known = await asyncio.get_running_loop().run_in_executor(self._decoding, read)
            put = await files_due.put(lambda: self._put(topic, known))
        return await self._settled(topic.name, put, batch)

    def _parts(self, asked: _Asked, batch: _Batch | _EncodedBatch) -> Parts:
        """Where messages belong whose keys name a shard; no parts: they are stored here."""
        store = self._service.store
        if asked.has_shard or self._service.shards.members.alone or store.once is None:
            return {}
        given = batch.given
        window_ms = store.config.unique_key_window
        return {} if given is None else self._service.key_routing.parts(given, window_ms)

    async def _is_known(
        self, topic: TopicConfig, batch: _Batch | _EncodedBatch, numbers: Sequence[int]
    ) -> bool:
        """Whether any of these messages was stored here before."""
        once, keys = self._service.store.once, batch.keys
        return once is not None and once.knows(topic.name, [keys[each] for each in numbers])

    async def _routed(
        self,
        topic: TopicConfig,
        batch: _Batch | _EncodedBatch,
        parts: Parts,
        forwarded: ForwardedRequest,
        *,
        is_json: bool,
    ) -> Reply:
        """The reply of the shards that the keys name, this one among them or not."""
        routing = self._service.key_routing
        if len(parts) == 1:
            ((visits, numbers),) = parts.items()
            is_known = partial(self._is_known, topic, batch, numbers)
            return await routing.visit(
                visits, forwarded, is_known, partial(self._done, topic, batch)
            )
        whole = batch.decoded() if isinstance(batch, _EncodedBatch) else batch
        visiting = []
        for visits, numbers in parts.items():
            part = whole.only(numbers)
            if is_json:
                content = divide_json(forwarded.content, numbers, whole.given or ())
            else:
                content = encode_batch(part.messages)
            is_known = partial(self._is_known, topic, whole, numbers)
            store = partial(self._done, topic, part)
            visiting.append(routing.visit(visits, divide(forwarded, content), is_known, store))
        return join(parts, await asyncio.gather(*visiting))

    async def _settled(self, topic: str, put: Put, batch: _Batch | _EncodedBatch) -> Reply:
        """The answer, once what was put counts as asked for."""
        try:
            await self._service.settled(end_of(put), sync=batch.sync)
        except FlushTimeout as error:
            once = self._service.store.once
            if once is not None:  # generated keys, too: the client is told them
                once.remember(topic, batch.keys, put[0])
            placed = msgspec.Raw(self._placed(put, batch.keys))
            raise Problem(problems.FLUSH_TIMEOUT, str(error), extra={"messages": placed}) from error
        return Reply(self._told(put, batch.keys), _CREATED)

    def _require_own(self, request: HotRequest) -> None:
        """Raises Problem (421) for another shard's message: the client is told where that is."""
        if not request.scope["query_string"]:
            return
        shards = self._service.shards
        other = shards.find_remote(_number("shard", request.query().get("shard")), request.scope)
        if other is not None:
            raise shards.misdirected(other)

    def _put(self, topic: TopicConfig, batch: _Batch | _EncodedBatch) -> Put:
        store = self._service.store
        if topic.name not in self._topics:
            store.topic(topic.name)  # deleted meanwhile?
        started = time.perf_counter()
        put = batch.append_to(store, topic.name)
        self._count(topic.name, put, batch, time.perf_counter() - started)
        return put

    async def _look_up(self, name: str) -> TopicConfig:
        """One that takes messages. Raises TopicNameError, TopicUnknown, Problem."""
        store = self._service.store
        topic_names.check_send_topic(name, store.format)
        try:
            topic = store.topic(name)
        except TopicUnknown:
            if not store.config.auto_create_topic_enable:
                raise
            queues = store.config.default_topic_queue_nums
            topic = await asyncio.to_thread(store.create_topic, name, queues=queues)
        if not topic.is_writable or topic.write_queues < 1:
            raise Problem(problems.TOPIC_NOT_WRITABLE, f"topic {name} takes no messages")
        self._topics[name] = topic
        return topic

    def _asked(self, request: HotRequest) -> _Asked:
        """Raises Problem."""
        checksum = request.header(b"x-mqstore-crc32c")
        crc32c = None if checksum is None else produce.crc32c_of(checksum)
        client = produce.client_host(*request.client_address)
        media_type, query = request.media_type, request.query()
        key = idempotency.read(request)
        if media_type == JSON_TYPE:
            refuse_unknown(query, ("shard",))
            return _Asked(client, crc32c, has_shard="shard" in query, idempotency_key=key)
        if media_type == BATCH_TYPE:
            refuse_unknown(query, ("queueId", "durability", "shard"))
            queue_id = _number("queueId", query.get("queueId"))
            durability, has_shard = query.get("durability"), "shard" in query
            return _Asked(client, crc32c, True, queue_id, durability, has_shard, key)
        raise Problem(
            problems.UNSUPPORTED_MEDIA_TYPE,
            f"send content-type {JSON_TYPE.decode()} or {BATCH_TYPE.decode()}",
        )

    def _batch(self, asked: _Asked, topic: TopicConfig, body: bytes) -> _Batch | _EncodedBatch:
        """What the body asks for. Raises Problem, StorageError."""
        if asked.crc32c is not None:
            produce.check_crc32c(body, asked.crc32c, "the request's body")
        return (self._from_batch if asked.is_encoded else self._from_json)(asked, topic, body)

    def _from_json(self, asked: _Asked, topic: TopicConfig, body: bytes) -> _Batch:
        service = self._service
        request = produce.decode_request(body, service.settings.max_batch_count)
        messages, key = request.messages, asked.idempotency_key
        if key is not None:
            idempotency.provide(key, messages)
        origin = self._origin(asked, topic, produce.asked_queue(messages))
        store = service.store
        store_format, levels, keys = store.format, store.delays.levels, self._unique_keys
        built = [produce.build(each, origin, keys, store_format, levels) for each in messages]
        uniq_keys = [uniq_key for _, uniq_key in built]
        return _Batch(
            [message for message, _ in built],
            uniq_keys,
            self._is_sync(request.durability),
            _given(messages),
            any(each.delay_level for each in messages),
            key,
            _other_keys(key, uniq_keys),
        )

    def _from_batch(self, asked: _Asked, topic: TopicConfig, body: bytes) -> _Batch | _EncodedBatch:
        origin = self._origin(asked, topic, asked.queue_id)
        sync = self._is_sync(asked.durability)
        store, max_count = self._service.store, self._service.settings.max_batch_count
        key = asked.idempotency_key

        def decoded() -> _Batch:
            messages, keys = produce.build_batch(body, origin, store.format, max_count, key)
            given = [each or None for each in keys] if any(keys) else None
            return _Batch(messages, keys, sync, given, False, key, _other_keys(key, keys))

        if key is not None:
            return decoded()
        batch = produce.read_batch(body, origin, store.log.end, store.format, max_count)
        return decoded() if batch is None else _EncodedBatch(batch, batch.keys, sync, decoded)

    def _origin(self, asked: _Asked, topic: TopicConfig, queue_id: int | None) -> produce.Origin:
        return produce.Origin(
            topic.name,
            self._queues.choose(topic.name, topic.write_queues, queue_id),
            asked.client,
            self._service.store.host,
            produce.now_ms(),
        )

    def _is_sync(self, durability: str | None) -> bool:
        if durability is None:
            return self._service.store.config.flush_disk_type is _SYNC_FLUSH
        if durability not in _DURABILITIES:
            raise Problem(problems.BAD_PARAMETER, "durability is sync or async")
        return _DURABILITIES[durability]

    def _count(self, topic: str, put: Put, batch: _Batch | _EncodedBatch, seconds: float) -> None:
        stored, repeats = put
        if repeats:
            stored = [each for number, each in enumerate(stored) if number not in repeats]
        if stored:
            metrics = self._service.metrics
            metrics.stored(topic, stored, delayed=batch.delayed, seconds=seconds)

    def _told(self, put: Put, keys: list[str]) -> bytes:
        """A ``ProduceReply``."""
        return b'{"messages":%b}' % self._placed(put, keys)

    def _placed(self, put: Put, keys: list[str]) -> bytes:
        """Each a ``MessagePlace``, in JSON."""
        placements, repeats = put
        return placements_json(
            placements, keys, self._service.settings.shard, repeats, produce.quote
        )


class _Inspection:
    def __init__(self, service: WriterService) -> None:
        self._service = service

    def add(self, api: Api) -> None:
        Endpoint(store_operations.STORE, self.store).add(api)
        Endpoint(store_operations.RECOVERY, self.recovery, documented=RecoveryReport).add(api)
        Endpoint(store_operations.DELAYS, self.delays).add(api)
        Endpoint(store_operations.SEGMENTS, self.segments).add(api)

    async def store(self) -> Store:
        store = self._service.store
        found = Store.model_validate(await asyncio.to_thread(store.status))
        entries = self._service.shards.members.entries.values()
        return found.model_copy(
            update={"shards": tuple(ShardEntry.model_validate(each) for each in entries)}
        )

    async def recovery(self) -> RecoveryReport:
        return self._service.store.recovery

    async def delays(self) -> DelayLevels:
        """Delivery runs by itself; a level that stands still says why."""
        found = await asyncio.to_thread(self._service.store.delays.status)
        levels = [DelayLevel.model_validate(each) for each in found]
        return DelayLevels(levels=tuple(levels))

    async def segments(self) -> Segments:
        found = await asyncio.to_thread(self._service.store.segments)
        return Segments(segments=tuple([Segment.model_validate(each) for each in found]))


def _deferred(reply: Coroutine[Any, Any, Reply]) -> DeferredReply:
    return DeferredReply(asyncio.get_running_loop().create_task(reply))


def _given(messages: Sequence[NewMessage]) -> list[str | None] | None:
    keys = [message.uniq_key for message in messages]
    return keys if any(keys) else None


def _other_keys(idempotency_key: str | None, keys: Sequence[str]) -> Sequence[str]:
    return () if idempotency_key is None else other_keys(idempotency_key, keys)


def _number(name: str, text: str | None) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 10):
        raise Problem(problems.BAD_PARAMETER, f"{name} is a number from 0")
    return int(text)
