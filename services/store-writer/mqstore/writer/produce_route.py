"""The hot route that stores messages, on the shard that their keys name."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http import HTTPStatus
from typing import Any, Final

import msgspec

from mqstore.service import idempotency, problems
from mqstore.service.app import Api
from mqstore.service.endpoint import Endpoint, Hot
from mqstore.service.forwarding import ForwardedRequest, read_client, was_forwarded
from mqstore.service.http import (
    FutureReply,
    HotRequest,
    HotResult,
    Prepared,
    Reply,
    problem_of,
    refuse_unknown,
)
from mqstore.service.membership import ShardEntry
from mqstore.service.problems import Problem
from mqstore.service.slave_errors import ChangeUnconfirmed
from mqstore.storage import topic_names
from mqstore.storage.admin import TopicConfig
from mqstore.storage.errors import (
    FilePending,
    FlushTimeout,
    OriginalsUnread,
    StorageError,
    TopicUnknown,
)
from mqstore.storage.formats import Host
from mqstore.storage.puts import (
    EncodedBatch,
    Put,
    WaitingPlacement,
    encode_batch,
    end_of,
    placements_json,
)
from mqstore.wire import produce as operations
from mqstore.wire.idempotency import unique_keys
from mqstore.wire.operation import RELAY
from mqstore.writer import produce
from mqstore.writer.batches import Batch
from mqstore.writer.key_routing import Parts, divide, divide_json, join
from mqstore.writer.produce import JSON_TYPE
from mqstore.writer.sends import TopicSends, quote
from mqstore.writer.service import WriterService
from mqstore.writer.synced_reply import SyncedReply
from mqstore.writer.waits import DISK, REPLICA

BATCH_TYPE: Final = operations.BATCH_TYPE.encode()
_RELAY: Final = RELAY.lower().encode()
_CREATED: Final = int(HTTPStatus.CREATED)
_MESSAGES: Final = b'{"messages":'
"""The begin of a ``ProduceReply``."""
_DURABILITIES: Final = {"sync": DISK, "async": 0, "replicated": DISK | REPLICA}


class _Stored(msgspec.Struct, gc=False):
    """The messages of a request, which are stored."""

    reply: bytes
    end: int
    """A physical offset."""
    put: Put | None
    """None: all are stored, and none of them was before."""


class _RequestHead(msgspec.Struct, frozen=True, gc=False):
    """The parsed headers and query parameters of a produce request."""

    client: Host
    crc32c: int | None
    is_encoded: bool = False
    queue_id: int | None = None
    durability: str | None = None
    has_shard: bool = False
    """Whether the client names the shard. Its messages then stay on it, whatever their keys are."""
    idempotency_key: str | None = None

    def is_heavy(self, body: bytes) -> bool:
        """Return whether a thread must read the messages, instead of the event loop."""
        return produce.is_heavy(body, is_json=not self.is_encoded)


class ProduceRoute:
    """Serves ``POST /v1/topics/{topic}/messages``: one append under one lock for each request."""

    def __init__(self, service: WriterService) -> None:
        self._service = service
        self._sends = TopicSends(service)
        self._topics = service.topics
        self._unconfirmed: set[str] = set()
        """Topics that a produce has created, and of which a replica in sync may know nothing."""
        self._decoding = ThreadPoolExecutor(1, "decode")
        """One thread, so that only one competes with the event loop for the interpreter."""

    def add(self, api: Api) -> None:
        """Register the route with ``api``."""
        Endpoint(operations.PRODUCE, self._handle, Hot(prepare=self._prepare)).add(api)

    async def _handle(self, request: HotRequest) -> Reply:
        return await self._with_writable_shard(self._produce(request))

    async def _with_writable_shard(self, answering: Coroutine[Any, Any, Reply]) -> Reply:
        """Await a reply. With several shards, add to a refusal one that takes messages."""
        if self._service.shards.members.alone:
            return await answering
        try:
            return await answering
        except (Problem, StorageError) as error:
            problem = error if isinstance(error, Problem) else problem_of(error)
            await self._service.writable_shards.add_to(problem)
            raise problem from error

    async def _produce(self, request: HotRequest) -> Reply:
        service = self._service
        if (other := self._find_named(request)) is not None:
            forwarded = service.build_forwarded(request.scope, await request.body())
            return await service.shards.reply(other, forwarded)
        service.require_puts()
        name = request.params["topic"]
        topic = self._topics.get(name) or await self._look_up(name)
        body = await request.body()
        # it may have been deleted meanwhile
        topic = self._topics.get(name) or await self._look_up(name)
        head = self._parse_head(request)
        if head.is_heavy(body):
            decode = partial(self._batch, head, topic, body, heavy=True)
            batch = await asyncio.get_running_loop().run_in_executor(self._decoding, decode)
        else:
            batch = self._batch(head, topic, body)
        parts = self._parts(head, batch)
        if service.key_routing.are_own(parts):
            return await self._store(topic, batch)
        if was_forwarded(request.scope):
            await service.key_routing.require_own(parts, partial(self._is_known, topic, batch))
            return await self._store(topic, batch)
        forwarded = service.build_forwarded(request.scope, body)
        is_json = not head.is_encoded
        return await self._route(topic, batch, parts, forwarded, is_json=is_json)

    def _prepare(self, request: HotRequest) -> Prepared:
        """Prepare a put into a known topic, which is answered at once if it needs no wait."""
        service, name = self._service, request.params["topic"]
        if self._find_named(request) is not None:
            return Prepared(lambda body, _: None, _CREATED)
        head = self._parse_head(request)

        def begin(body: bytes, _: Mapping[str, str]) -> HotResult:
            topic = self._topics.get(name)
            if not service.takes_puts:
                service.require_puts()
            if topic is None or head.is_heavy(body):
                return None
            batch = self._batch(head, topic, body)
            is_alone = service.shards.members.alone
            if not (is_alone or service.key_routing.are_own(self._parts(head, batch))):
                return None
            try:
                stored = self._put(topic, batch)
            except (FilePending, OriginalsUnread):
                # This keeps the chosen queue: a new choice might need another file each time.
                return _defer(self._with_writable_shard(self._store(topic, batch)))
            if service.commits is not None:
                return _defer(self._await_durability(name, stored, batch))
            if not batch.waits:
                return stored.reply
            waits = batch.waits
            late = partial(self._not_synced, name, stored, batch)
            seconds = service.metrics.waits_of(waits)
            return SyncedReply(service.waiter(waits), stored.end, stored.reply, seconds, late)

        return Prepared(begin, _CREATED)

    async def _store(self, topic: TopicConfig, batch: Batch) -> Reply:
        pending_files, store = self._service.pending_files, self._service.store
        try:
            stored = await pending_files.put(lambda: self._put(topic, batch))
        except OriginalsUnread:
            read = partial(batch.read_originals, store)
            known = await asyncio.get_running_loop().run_in_executor(self._decoding, read)
            stored = await pending_files.put(lambda: self._put(topic, known))
        return await self._await_durability(topic.name, stored, batch)

    async def _store_part(self, topic: TopicConfig, part: Batch, numbers: Sequence[int]) -> Reply:
        """Store messages that have these numbers in the request, as ``_store``."""
        try:
            return await self._store(topic, part)
        except (Problem, StorageError) as error:
            problem = error if isinstance(error, Problem) else problem_of(error)
            if (index := problem.extra.get("index")) is not None:
                problem.extra["index"] = numbers[index]
            raise problem from error

    def _parts(self, head: _RequestHead, batch: Batch) -> Parts:
        """Return the shards that keys name, with their messages; none if all stay here."""
        if head.has_shard or self._service.shards.members.alone:
            return {}
        store, content = self._service.store, batch.content
        given = None if store.dedup is None else content.given
        ordering = content.ordering
        if given is None and ordering is None:
            return {}
        window_ms = store.config.unique_key_window
        given = given or [None] * len(content)
        return self._service.key_routing.parts(given, window_ms, ordering)

    async def _is_known(self, topic: TopicConfig, batch: Batch, numbers: Sequence[int]) -> bool:
        """Return whether any of these messages was stored here before."""
        once, keys = self._service.store.dedup, batch.content.keys
        return once is not None and once.knows(topic.name, [keys[each] for each in numbers])

    async def _route(
        self,
        topic: TopicConfig,
        batch: Batch,
        parts: Parts,
        forwarded: ForwardedRequest,
        *,
        is_json: bool,
    ) -> Reply:
        """Store messages on the shards that their keys name, and return the joined reply."""
        routing = self._service.key_routing
        if len(parts) == 1:
            ((visits, numbers),) = parts.items()
            is_known = partial(self._is_known, topic, batch, numbers)
            return await routing.visit(
                visits, forwarded, is_known, partial(self._store, topic, batch)
            )
        visiting = []
        for visits, numbers in parts.items():
            part = batch.only(numbers)
            if is_json:
                content = divide_json(forwarded.content, numbers, batch.content.given or ())
            else:
                content = encode_batch(part.content.messages())
            is_known = partial(self._is_known, topic, batch, numbers)
            store = partial(self._store_part, topic, part, numbers)
            visiting.append(routing.visit(visits, divide(forwarded, content), is_known, store))
        return join(parts, await asyncio.gather(*visiting))

    async def _await_durability(self, topic: str, stored: _Stored, batch: Batch) -> Reply:
        """Wait for the durability that the request needs, and return the reply. Raises Problem."""
        try:
            await self._service.await_durability(stored.end, batch.waits)
        except FlushTimeout as error:
            raise self._not_synced(topic, stored, batch, error) from error
        return Reply(stored.reply, _CREATED)

    def _not_synced(
        self, topic: str, stored: _Stored, batch: Batch, error: FlushTimeout
    ) -> Problem:
        """Return the reply for messages that are stored and not known to be on disk, or on a
        slave."""
        dedup = self._service.store.dedup
        if dedup is not None:  # with generated keys, which the reply has
            placements = batch.content.placements if stored.put is None else stored.put[0]
            dedup.remember(topic, batch.content.keys, placements)
        placed = msgspec.Raw(stored.reply[len(_MESSAGES) : -1])
        return Problem(problem_of(error).kind, str(error), extra={"messages": placed})

    def _find_named(self, request: HotRequest) -> ShardEntry | None:
        """Return the other shard that a client names and to which it wants the request forwarded.

        Raises Problem (421), with the shard's address, for a client that sends it there itself.
        """
        if not request.scope["query_string"]:
            return None
        shards = self._service.shards
        other = shards.find_remote(_number("shard", request.query().get("shard")), request.scope)
        if other is not None and request.header(_RELAY) is None:
            raise shards.misdirected(other)
        return other

    def _put(self, topic: TopicConfig, batch: Batch) -> _Stored:
        """Raises UniqueKeyTaken, OriginalsUnread, FilePending."""
        store, content = self._service.store, batch.content
        if topic.name not in self._topics:
            store.topic(topic.name)  # it may have been deleted meanwhile
        if batch.idempotency_key is not None:
            batch.require_one_request(store, topic.name)
        reply = batch.sends.put(content)
        if isinstance(reply, bytes):
            return _Stored(reply, content.end, None)
        started = time.perf_counter()
        put = batch.append_to(store)
        self._count(topic.name, put, content, time.perf_counter() - started)
        placed = self._encode_placements(put, content.keys)
        return _Stored(b"%b%b}" % (_MESSAGES, placed), end_of(put), put)

    async def _look_up(self, name: str) -> TopicConfig:
        """Return a topic that takes messages. One that this creates is on all replicas in sync.

        Raises TopicNameError, TopicUnknown, Problem, ChangeUnconfirmed.
        """
        store = self._service.store
        topic_names.check_send_topic(name, store.format)
        try:
            topic = store.topic(name)
        except TopicUnknown:
            if not store.config.auto_create_topic_enable or not self._may_create(name):
                raise
            self._unconfirmed.add(name)  # before another request finds the topic
            topic = await asyncio.to_thread(store.create_topic_by_producer, name)
        if name in self._unconfirmed:
            await self._confirm(name)
        topic.require_writable()
        self._topics[name] = topic
        return topic

    def _may_create(self, name: str) -> bool:
        """Whether a producer may create a topic: that of a group only if there is the group."""
        group = topic_names.returning_group(name)
        return group is None or self._service.store.groups.exists(group)

    async def _confirm(self, name: str) -> None:
        """Wait until all replicas in sync have a topic that was created. Raises
        ChangeUnconfirmed."""
        try:
            await self._service.settle_change()
        except ChangeUnconfirmed as error:
            text = f"topic {name} is created, and no message is stored: {error}"
            raise ChangeUnconfirmed(text) from error
        self._unconfirmed.discard(name)

    def _parse_head(self, request: HotRequest) -> _RequestHead:
        """Parse headers and query parameters. Raises Problem."""
        checksum = request.header(b"x-mqstore-crc32c")
        crc32c = None if checksum is None else produce.crc32c_of(checksum)
        client = produce.client_host(*read_client(request.scope, self._service.api.auth))
        media_type, query = request.media_type, request.query()
        key = idempotency.read(request)
        if media_type == JSON_TYPE:
            refuse_unknown(query, ("shard",))
            return _RequestHead(client, crc32c, has_shard="shard" in query, idempotency_key=key)
        if media_type == BATCH_TYPE:
            refuse_unknown(query, ("queueId", "durability", "shard"))
            queue_id = _number("queueId", query.get("queueId"))
            durability, has_shard = query.get("durability"), "shard" in query
            return _RequestHead(client, crc32c, True, queue_id, durability, has_shard, key)
        raise Problem(
            problems.UNSUPPORTED_MEDIA_TYPE,
            f"send content-type {JSON_TYPE.decode()} or {BATCH_TYPE.decode()}",
        )

    def _batch(
        self, head: _RequestHead, topic: TopicConfig, body: bytes, *, heavy: bool = False
    ) -> Batch:
        """Decode the body and encode its messages. Raises Problem, StorageError."""
        if head.crc32c is not None:
            produce.check_crc32c(body, head.crc32c, "the request's body")
        sends, key = self._sends.of(topic), head.idempotency_key
        if head.is_encoded:
            waits = self._waits(head.durability)
            queue_id = -1 if head.queue_id is None else head.queue_id
            keys_of = None if key is None else partial(unique_keys, key)
            content = sends.read_batch(body, head.client, queue_id, keys_of)
            return Batch(content, sends, waits, key)
        max_count = self._service.settings.max_batch_count
        request = produce.decode_request(body, max_count, heavy=heavy)
        messages = request.messages
        if key is not None:
            idempotency.provide(key, messages)
        content = sends.read(messages, head.client)
        return Batch(content, sends, self._waits(request.durability), key)

    def _waits(self, durability: str | None) -> int:
        """Return what the reply waits for. Raises Problem."""
        waits = default = self._service.default_waits
        if durability is not None:
            if durability not in _DURABILITIES:
                raise Problem(problems.BAD_PARAMETER, "durability is sync, async or replicated")
            waits = _DURABILITIES[durability]
            waits = waits and waits | default & REPLICA
        if waits & REPLICA:
            self._service.require_in_sync()
        return waits

    def _count(self, topic: str, put: Put, content: EncodedBatch, seconds: float) -> None:
        stored, duplicates = put
        if duplicates:
            stored = [each for number, each in enumerate(stored) if number not in duplicates]
        if stored:
            metrics, delayed = self._service.metrics, content.has_delay
            metrics.count_append(topic, stored, delayed=delayed, seconds=seconds)

    def _encode_placements(self, put: Put, keys: list[str]) -> bytes:
        """Encode each message's ``MessagePlace``."""
        placements, duplicates = put
        shard = self._service.settings.shard
        if WaitingPlacement not in map(type, placements):
            return placements_json(placements, keys, shard, duplicates, quote)
        found = []
        for number, (each, key) in enumerate(zip(placements, keys, strict=True)):
            repeats = (0,) if number in duplicates else ()
            text = placements_json([each], [key], shard, repeats, quote)[1:-1]
            if isinstance(each, WaitingPlacement):
                waiting = {"waitsIn": each.topic, "dueAt": each.due_ms}
                text = text[:-1] + b"," + msgspec.json.encode(waiting)[1:]
            found.append(text)
        return b"[%b]" % b",".join(found)


def _defer(reply: Coroutine[Any, Any, Reply]) -> FutureReply:
    return FutureReply(asyncio.get_running_loop().create_task(reply))


def _number(name: str, text: str | None) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 10):
        raise Problem(problems.BAD_PARAMETER, f"{name} is a number from 0")
    return int(text)
