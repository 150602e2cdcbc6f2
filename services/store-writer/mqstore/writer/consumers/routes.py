"""The endpoints of shared groups."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from mqstore.service import bodies, message_structs, problems
from mqstore.service.app import Api
from mqstore.service.endpoint import Endpoint, Hot
from mqstore.service.expressions import Compilations
from mqstore.service.http import (
    DeferredReply,
    FutureReply,
    HotRequest,
    HotResult,
    Prepared,
    Reply,
    await_while_connected,
)
from mqstore.service.limits import client_of
from mqstore.service.problems import Problem
from mqstore.storage import topic_names
from mqstore.storage.reads import PullFilter, SqlFilter, parse_tags
from mqstore.storage.shared_groups import (
    Receipt,
    ReceiptStatus,
    Received,
    Subscription,
    decode_by_queue,
    decode_receipts,
)
from mqstore.wire import consumers as operations
from mqstore.wire.parameters import ShardParameters
from mqstore.writer.consumers.leased_messages import LeasedMessages
from mqstore.writer.consumers.over_shards import Settle, ShardedConsumers
from mqstore.writer.consumers.receiving import Receiving
from mqstore.writer.service import WriterService

OTHERS_INTERVAL_S: Final = 1.0
"""Seconds between two looks at the other shards while a receive waits."""
_RECEIVE: Final = msgspec.json.Decoder(message_structs.ReceiveSpec)
_ACKNOWLEDGE: Final = msgspec.json.Decoder(message_structs.Acknowledgement)
_RETURN: Final = msgspec.json.Decoder(message_structs.Return)
_EXTEND: Final = msgspec.json.Decoder(message_structs.Extension)
_encode: Final = msgspec.json.Encoder().encode
_OK: Final = '","status":"ok"},{"receipt":"'
"""Text between two receipts that are settled."""


class ConsumerRoutes:
    """Used on the event loop only."""

    def __init__(self, service: WriterService) -> None:
        self._service = service
        self._sharded = ShardedConsumers(service.shards)
        self._compilations = Compilations()
        self._messages = LeasedMessages(service.settings.shard)

    def add(self, api: Api) -> None:
        """Register the routes with ``api``."""
        self._auth = api.auth
        receive = Hot(prepare=self._prepare_receive)
        Endpoint(operations.RECEIVE, self.receive, receive).add(api)
        acknowledge = Hot(prepare=self._prepare_acknowledge)
        Endpoint(operations.ACKNOWLEDGE, self.acknowledge, acknowledge).add(api)
        Endpoint(operations.RETURN, self.give_back, Hot()).add(api)
        Endpoint(operations.EXTEND, self.extend, Hot()).add(api)

    # receive ------------------------------------------------------------------------------

    async def receive(self, request: HotRequest) -> Reply:
        """Lease messages to the caller."""
        group = _group(request)
        shard = _shard(request)
        body = await request.body()
        spec = bodies.read(_RECEIVE, request, body)
        other = self._other_shard(request, shard)
        if other is not None:
            return await other(body)
        receiving = self._receive(request, group, spec, body)
        return await await_while_connected(request, receiving)

    def _prepare_receive(self, request: HotRequest) -> Prepared:
        """Prepare receives. One without filters needs no task: messages in memory are the reply at
        once, or in the turn of the event loop in which they come."""
        group = _group(request)
        shard = _shard(request)
        _require_json(request)

        def begin(body: bytes, _: Mapping[str, str]) -> HotResult:
            spec = bodies.decode(_RECEIVE, body)
            if self._other_shard(request, shard) is not None:
                return None
            first = None
            if not any(each.tags or each.sql for each in spec.topics.values()):
                alone = self._sharded.is_alone(request)
                wanted = [Subscription(topic) for topic in spec.topics]
                first = self._begin(request, group, spec, wanted, spec.wait if alone else 0.0)
                encode = partial(self._encode, group, spec.invisible_s)
                if first.is_done and (alone or first.result().batches):
                    return encode(first.result())
                if alone:
                    return _ReceiveReply(first, encode)
            receiving = self._receive(request, group, spec, body, first)
            return FutureReply(asyncio.create_task(receiving), needs_client=True)

        return Prepared(begin)

    async def _receive(
        self,
        request: HotRequest,
        group: str,
        spec: message_structs.ReceiveSpec,
        body: bytes,
        first: Receiving | None = None,
    ) -> Reply:
        """Receive here; where there are several shards, and this one has nothing, from another.
        ``first`` is a receive here that has begun."""
        wanted = [
            Subscription(topic, await self._filter(request, each))
            for topic, each in spec.topics.items()
        ]
        loop = asyncio.get_running_loop()
        until = loop.time() + spec.wait
        alone = self._sharded.is_alone(request)
        receiving = first or self._begin(request, group, spec, wanted, spec.wait if alone else 0.0)
        while True:
            found = await receiving.finished()
            if found.batches or alone:
                break
            members: dict[str, Any] = msgspec.json.decode(body)
            there = await self._sharded.receive(request, members, spec.max)
            if there is not None:
                return Reply(_encode(there))
            left = until - loop.time()
            if left <= 0 or self._service.consumers.arrivals.interrupted:
                break
            receiving = self._begin(request, group, spec, wanted, min(left, OTHERS_INTERVAL_S))
        return Reply(self._encode(group, spec.invisible_s, found))

    def _begin(
        self,
        request: HotRequest,
        group: str,
        spec: message_structs.ReceiveSpec,
        wanted: Sequence[Subscription],
        wait_s: float,
    ) -> Receiving:
        """Begin a receive here."""
        service = self._service
        service.require_writable()
        return service.consumers.receive(
            group,
            wanted,
            count=spec.max,
            max_bytes=service.settings.max_answer_bytes,
            invisible_s=spec.invisible_s,
            member=spec.member,
            wait_s=wait_s,
            client=client_of(request.scope),
            check=partial(self._auth.check, request.scope["headers"], operations.RECEIVE.role),
        )

    async def _filter(
        self, request: HotRequest, wanted: message_structs.WantedMessages
    ) -> PullFilter | None:
        """Compile the filter of a topic. Raises Problem (422, 429, 503), FilterError."""
        if wanted.sql is None:
            return parse_tags(wanted.tags or "")
        if wanted.tags is not None:
            raise Problem(problems.BODY_INVALID, "give tags or sql, not both")
        store_format, client = self._service.store.format, client_of(request.scope)
        return SqlFilter(await self._compilations.compile(wanted.sql, store_format, client))

    def _other_shard(
        self, request: HotRequest, shard: int | None
    ) -> Callable[[bytes], Awaitable[Reply]] | None:
        """Forwards a request that names another shard; None for one that does not."""
        shards = self._service.shards
        entry = shards.find_remote(shard, request.scope)
        if entry is None:
            return None
        return lambda body: shards.reply(entry, self._service.build_forwarded(request.scope, body))

    def _encode(self, group: str, invisible_s: float, found: Received) -> bytes:
        expires_ms = int((time.time() + invisible_s) * 1000)
        for batch in found.batches:
            size = sum([record.size for record in batch.records])
            self._service.metrics.traffic_out.count(
                batch.source_topic, group, len(batch.records), size
            )
        return self._messages.encode(group, found, expires_ms)

    # acknowledge, return, extend ----------------------------------------------------------

    async def acknowledge(self, request: HotRequest) -> Reply:
        """Acknowledge messages: the group gets them no more."""
        group = _group(request)
        body = await request.body()
        given = bodies.read(_ACKNOWLEDGE, request, body)

        async def here(receipts: Sequence[Receipt]) -> Sequence[str]:
            engine = self._service.consumers.engine
            return await asyncio.to_thread(engine.acknowledge, group, receipts)

        return await self._settle(request, group, given.receipts, body, here, only_full=True)

    def _prepare_acknowledge(self, request: HotRequest) -> Prepared:
        """Prepare acknowledgements of this shard, which wait for nothing."""
        group = _group(request)
        shard = _shard(request)
        _require_json(request)

        def begin(body: bytes, _: Mapping[str, str]) -> HotResult:
            service = self._service
            texts = bodies.decode(_ACKNOWLEDGE, body).receipts
            receipts = decode_by_queue(texts)
            if self._other_shard(request, shard) is not None:
                return None
            if any(each.shard != service.shards.own for each in receipts):
                return None
            service.require_writable()
            statuses = service.consumers.engine.acknowledge_at_once(group, receipts)
            if statuses is None:
                return None
            return self._settled(group, texts, statuses, only_full=True)

        return Prepared(begin)

    async def give_back(self, request: HotRequest) -> Reply:
        """Return messages: each is delivered again after a delay, or becomes a dead letter."""
        group = _group(request)
        body = await request.body()
        given = bodies.read(_RETURN, request, body)
        topic_names.check_property_text("reason", given.reason)

        async def here(receipts: Sequence[Receipt]) -> Sequence[str]:
            service = self._service
            service.require_puts()
            act = partial(service.consumers.engine.give_back, group, receipts)
            level, reason, delay_s = given.delay_level, given.reason, given.delay_s
            statuses, end = await asyncio.to_thread(act, level, reason, delay_s)
            if end:
                await service.await_durability(end, service.default_waits)
            return statuses

        return await self._settle(request, group, given.receipts, body, here)

    async def extend(self, request: HotRequest) -> Reply:
        """Let leases end at another time."""
        group = _group(request)
        body = await request.body()
        given = bodies.read(_EXTEND, request, body)

        async def here(receipts: Sequence[Receipt]) -> Sequence[str]:
            engine = self._service.consumers.engine
            return await asyncio.to_thread(engine.extend, group, receipts, given.invisible_s)

        return await self._settle(request, group, given.receipts, body, here)

    async def _settle(
        self,
        request: HotRequest,
        group: str,
        texts: Sequence[str],
        body: bytes,
        here: Settle,
        *,
        only_full: bool = False,
    ) -> Reply:
        """Settle receipts. ``only_full``: receives that wait gain nothing by it but room."""
        other = self._other_shard(request, _shard(request))
        if other is not None:
            return await other(body)
        self._service.require_writable()
        receipts = decode_receipts(texts)
        members = msgspec.json.decode(body)
        statuses = await self._sharded.settle(request, members, receipts, here)
        return Reply(self._settled(group, texts, statuses, only_full=only_full))

    def _settled(
        self, group: str, texts: Sequence[str], statuses: Sequence[str], *, only_full: bool
    ) -> bytes:
        """Wake receives that wait, and encode the results."""
        self._service.consumers.lines.wake(group, only_full=only_full)
        return encode_results(group, texts, statuses)


class _ReceiveReply(DeferredReply):
    """The reply of a receive that is not done yet."""

    __slots__ = ("_encode", "_receiving")

    def __init__(self, receiving: Receiving, encode: Callable[[Received], bytes]) -> None:
        self._receiving = receiving
        self._encode = encode

    def then(self, callback: Callable[[], object]) -> None:
        """See ``DeferredReply``."""
        self._receiving.then(callback)

    def reply(self) -> bytes:
        """See ``DeferredReply``. Raises as ``Receiving.result``."""
        return self._encode(self._receiving.result())

    def disconnect(self) -> None:
        """See ``DeferredReply``."""
        self._receiving.cancel()


def encode_results(group: str, texts: Sequence[str], statuses: Sequence[str]) -> bytes:
    """Encode ``ReceiptResults``. The receipts were decoded before: no character of theirs needs to
    be escaped."""
    if statuses and statuses.count(ReceiptStatus.OK) == len(statuses):
        results = f'{{"receipt":"{_OK.join(texts)}","status":"ok"}}'
    else:
        results = ",".join(
            [
                f'{{"receipt":"{text}","status":"{status}"}}'
                for text, status in zip(texts, statuses, strict=True)
            ]
        )
    return b'{"group":%b,"results":[%b]}' % (_encode(group), results.encode())


def _shard(request: HotRequest) -> int | None:
    """Return the shard that a request names. Raises Problem (400)."""
    return bodies.parameters(ShardParameters, request.query()).shard


def _require_json(request: HotRequest) -> None:
    """Raise Problem (415) for a body of another media type than JSON."""
    if not bodies.is_json(request.media_type.decode("latin-1")):
        raise bodies.not_json_problem()


def _group(request: HotRequest) -> str:
    """The name of the group in the path. Raises GroupNameError."""
    group = request.params["group"]
    topic_names.check_own_group(group)
    return group
