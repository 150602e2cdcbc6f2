"""store-writer's routes for mqstore's other services: appends under a fence, the fences, and damage
that readers of the store met."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from functools import lru_cache
from http import HTTPStatus
from typing import Annotated, Any, Final

import msgspec
from fastapi import Path as PathParameter
from fastapi import Response

from mqstore.service import bodies, problems
from mqstore.service.app import Api, documented, json_content
from mqstore.service.auth import Role
from mqstore.service.http import HotRequest, HotRoute
from mqstore.service.problems import Problem
from mqstore.service.quick import Begun, Prepared
from mqstore.service.reply import Reply
from mqstore.storage._kernel import placements_json
from mqstore.storage.codec import properties, topic_names
from mqstore.storage.codec.hosts import Host, parse_host
from mqstore.storage.codec.record import Message
from mqstore.storage.config import FlushDiskType
from mqstore.storage.errors import FenceUnknown, FilePending, FlushTimeout
from mqstore.storage.layout import PROPERTY_UNIQ_KEY
from mqstore.storage.log.commit_log import Placement
from mqstore.storage.message_store import MessageStore
from mqstore.storage.own.fences import NAME, Fence
from mqstore.wire.examples import stores as examples
from mqstore.writer import control, produce
from mqstore.writer.internal_models import (
    APPEND_EXAMPLE,
    DAMAGE_EXAMPLE,
    FENCE_EXAMPLE,
    KINDS_EXAMPLE,
    OFFSETS_EXAMPLE,
    AllOffsets,
    AppendReply,
    AppendRequest,
    DamageReply,
    DamageSpec,
    FenceAt,
    FenceList,
    FenceSpec,
    KeyKinds,
    KeyList,
    KeyOf,
    NewRecord,
)
from mqstore.writer.service import WriterService

_FENCES: Final = "/v1/internal/fences"
_FENCE: Final = _FENCES + "/{name}"
HOSTS_KEPT: Final = 1_024
TOPICS_KEPT: Final = 1_024
"""That are known to be names of topics."""
FenceName = Annotated[
    str,
    PathParameter(
        pattern=f"^{NAME.pattern}$",
        description="Letters, digits, `.` `_` `-`; at most 100.",
        openapi_examples={"a leader's": {"value": "coordinator"}},
    ),
]


class InternalRoutes:
    """Who calls these owns what they write: names and bits are RocketMQ's own affair."""

    def __init__(self, service: WriterService) -> None:
        self._service = service
        self._decoder = msgspec.json.Decoder(AppendRequest)

    def add(self, api: Api) -> None:
        """Put the routes into store-writer's interface."""
        api.add_schemas(AppendRequest, KeyOf, FenceAt, NewRecord, AppendReply, AllOffsets)
        api.add_hot(
            HotRoute(
                *("POST", "/v1/internal/append", Role.SYSTEM, self._append, _operation()),
                prepare=self._prepare,
            )
        )
        fences = control.answers({"fences": [FENCE_EXAMPLE]}, problems.STORE_NOT_WRITABLE)
        fence = control.answers(FENCE_EXAMPLE, problems.STORE_NOT_WRITABLE, problems.FENCE_UNKNOWN)
        raised = control.answers(
            FENCE_EXAMPLE,
            problems.STORE_NOT_WRITABLE,
            problems.FENCED_OFF,
            problems.FENCE_REFUSED,
            *problems.WITH_BODY,
        )
        created: control.Answers = {201: {"model": Fence, "description": "New."}}
        looked_up = control.answers(KINDS_EXAMPLE, *problems.WITH_BODY)
        for method, path, endpoint, summary, answered in (
            ("POST", "/v1/internal/keys", self.keys, "Kinds of records by unique key", looked_up),
            ("GET", _FENCES, self.fences, "All fences", fences),
            ("GET", _FENCE, self.fence, "One fence", fence),
            ("PUT", _FENCE, self.raise_fence, "Raise a fence", created | raised),
        ):
            control.add(
                api,
                method,
                path,
                endpoint,
                summary,
                HTTPStatus.OK,
                answered,
                tag="internal",
                role=Role.SYSTEM,
            )
        path, summary = "/v1/internal/offsets", "Committed offsets of all groups"
        answered = documented("AllOffsets", OFFSETS_EXAMPLE)
        control.add(api, "GET", path, self.offsets, summary, 200, answered, tag="internal")
        summary, status = "Report damage of the log", HTTPStatus.ACCEPTED
        taken = control.answers(DAMAGE_EXAMPLE, *problems.WITH_BODY, status=status)
        control.add(
            api,
            "POST",
            "/v1/internal/damage",
            self.damage,
            summary,
            status,
            taken,
            tag="internal",
            role=Role.SYSTEM,
        )
        gone = problems.responses(problems.STORE_NOT_WRITABLE, problems.FENCE_UNKNOWN)
        summary, status = "Reset a fence", HTTPStatus.NO_CONTENT
        control.add(api, "DELETE", _FENCE, self.reset_fence, summary, status, gone, tag="internal")

    async def keys(self, spec: KeyList) -> KeyKinds:
        """The transaction types of the records that have each unique key."""
        return await asyncio.to_thread(self._kinds, spec)

    def _kinds(self, spec: KeyList) -> KeyKinds:
        lookups = self._service.store.lookups
        found = [lookups.transaction_types(each.topic, each.key) for each in spec.keys]
        return KeyKinds(kinds=[sorted(each or ()) for each in found], complete=None not in found)

    async def offsets(self) -> Response:
        """The committed offsets of all groups, saved or not. Query derives lags from them; it
        authenticates with the token of its client."""
        body = await asyncio.to_thread(self._encode_offsets)
        return Response(body, media_type="application/json")

    def _encode_offsets(self) -> bytes:
        return msgspec.json.encode(AllOffsets(self._service.store.offsets.by_queue()))

    async def damage(self, spec: DamageSpec) -> DamageReply:
        """From a reader of the store whose look-ups met damage. The scrub checks the block that
        holds each offset by itself, and treats damage there as it treats damage that a pass finds.
        Offsets outside of the log are ignored."""
        return DamageReply(waiting=self._service.store.report_damage(spec.offsets))

    async def fences(self) -> FenceList:
        return FenceList(fences=self._service.store.fences.all())

    async def fence(self, name: FenceName) -> Fence:
        return self._service.store.fences.get(name)

    async def raise_fence(self, name: FenceName, spec: FenceSpec, response: Response) -> Fence:
        """Durable when it is answered: nothing is appended under a lower epoch any more. The
        present epoch changes nothing, a lower one is refused. 201 when it is new. 503 while other
        shards do not know of this one: without a fence nothing is appended."""
        self._service.require_joined()
        fences = self._service.store.fences
        try:
            fences.get(name)
        except FenceUnknown:
            response.status_code = HTTPStatus.CREATED
        return await asyncio.to_thread(fences.raise_to, name, spec.epoch)

    async def reset_fence(self, name: FenceName) -> None:
        """By an administrator, where an epoch was raised by mistake: make sure first that no
        leader of an earlier epoch lives, as nothing stops one afterwards. The next leader raises
        the fence anew."""
        self._service.require_joined()
        await asyncio.to_thread(self._service.store.fences.reset, name)

    async def _append(self, request: HotRequest) -> Reply:
        service = self._service
        service.require_writable()
        produce.check_json_head(request)
        asked = bodies.decode(self._decoder, await request.body())
        messages = self._messages(asked, produce.client_host(*request.client_address))
        fences, fence = service.store.fences, asked.fence
        if not fences.stands_at(fence.name, fence.epoch):
            service.require_joined()
            await asyncio.to_thread(fences.raise_to, fence.name, fence.epoch)
        return await self._done(asked, messages)

    def _prepare(self, request: HotRequest) -> Prepared:
        """An append at whose epoch the fence stands; who is not kept waiting is answered."""
        service = self._service
        produce.check_json_head(request)
        caller = produce.client_host(*request.client_address)

        def begin(body: bytes, _: Mapping[str, str]) -> Begun:
            service.require_writable()
            asked = bodies.decode(self._decoder, body)
            fence = asked.fence
            if not service.store.fences.stands_at(fence.name, fence.epoch):
                return None
            messages = self._messages(asked, caller)
            try:
                placements = self._put(asked, messages)
            except FilePending:
                return self._done(asked, messages)
            if service.commits is not None or self._is_sync(asked):
                return self._settled(asked, placements)
            return self._told(asked, placements)

        return Prepared(begin, HTTPStatus.CREATED)

    def _messages(self, asked: AppendRequest, caller: Host) -> list[Message]:
        """Raises Problem, TopicNameError, PropertyError."""
        produce.check_count(len(asked.records), self._service.settings.max_batch_count)
        return [_message(each, self._service.store, caller) for each in asked.records]

    def _put(self, asked: AppendRequest, messages: list[Message]) -> list[Placement]:
        fence, absent = asked.fence, [(each.topic, each.key) for each in asked.absent]
        started = time.perf_counter()
        placements = self._service.store.append_fenced(fence.name, fence.epoch, messages, absent)
        self._service.metrics.appended(messages, placements, time.perf_counter() - started)
        return placements

    async def _done(self, asked: AppendRequest, messages: list[Message]) -> Reply:
        placements = await self._service.files_due.put(lambda: self._put(asked, messages))
        return await self._settled(asked, placements)

    async def _settled(self, asked: AppendRequest, placements: list[Placement]) -> Reply:
        """The answer, once what was put counts as asked for."""
        try:
            await self._service.settled(placements[-1].end, sync=self._is_sync(asked))
        except FlushTimeout as error:
            told = {"messages": msgspec.Raw(self._placed(placements, asked.records))}
            raise Problem(problems.FLUSH_TIMEOUT, str(error), extra=told) from error
        return Reply(self._told(asked, placements), HTTPStatus.CREATED)

    def _told(self, asked: AppendRequest, placements: list[Placement]) -> bytes:
        """An ``AppendReply``."""
        is_readable = self._service.store.dispatcher.position >= placements[-1].end
        placed = self._placed(placements, asked.records)
        return b'{"records":%b,"readable":%b}' % (placed, b"true" if is_readable else b"false")

    def _is_sync(self, asked: AppendRequest) -> bool:
        if asked.durability is None:
            return self._service.store.config.flush_disk_type is FlushDiskType.SYNC
        return asked.durability == "sync"

    def _placed(self, placements: list[Placement], records: list[NewRecord]) -> bytes:
        """Each a ``Placed``, in JSON."""
        keys = [record.properties.get(PROPERTY_UNIQ_KEY, "") for record in records]
        return placements_json(placements, keys, self._service.settings.shard, (), produce.quote)


def _message(new: NewRecord, store: MessageStore, caller: Host) -> Message:
    """Raises Problem, TopicNameError, PropertyError."""
    _check_topic(new.topic, store.format)
    encoded = properties.encode(
        new.properties, trailing_separator=store.format.trailing_property_separator
    )
    born_ms = new.born_timestamp
    return Message(
        new.topic,
        new.queue_id,
        _body(new),
        encoded,
        caller if new.born_host is None else _host(new.born_host),
        store.host,
        produce.now_ms() if born_ms is None else born_ms,
        new.flag,
        new.sys_flag,
        new.reconsume_times,
        new.prepared_transaction_offset,
    )


_check_topic: Final = lru_cache(maxsize=TOPICS_KEPT)(topic_names.check_topic)
"""Refusals are not kept."""


def _body(new: NewRecord) -> bytes:
    """Raises Problem."""
    if new.body_base64 is None:
        return b"" if new.body is None else new.body.encode()
    if new.body is not None:
        raise Problem(problems.BODY_INVALID, "give body or bodyBase64, not both")
    return new.body_base64


@lru_cache(maxsize=HOSTS_KEPT)
def _host(text: str) -> Host:
    try:
        return parse_host(text)
    except ValueError:
        raise Problem(
            problems.MESSAGE_INVALID, f"bornHost {text[:100]!r} is no address:port"
        ) from None


def _operation() -> dict[str, Any]:
    example = {"records": examples.PRODUCED["messages"], "readable": True}
    answers = documented(
        "AppendReply",
        example,
        *problems.WITH_BODY,
        problems.HEADERS_TOO_LARGE,
        problems.INTERNAL,
        problems.TOPIC_INVALID,
        problems.PROPERTY_INVALID,
        problems.MESSAGE_INVALID,
        problems.FENCED_OFF,
        problems.FENCE_REFUSED,
        problems.FENCE_UNKNOWN,
        problems.KEYS_KNOWN,
        problems.STORE_NOT_WRITABLE,
        *problems.READ_ONLY_KINDS,
        problems.PAGE_CACHE_BUSY,
        problems.STORE_FAILED,
        problems.FLUSH_TIMEOUT,
        *problems.FILE_KINDS,
        *problems.GUARDED,
        status=201,
        text="Stored, with the durability asked for.",
    )
    return {
        "operationId": "append",
        "tags": ["internal"],
        "summary": "Append records under a fence",
        "description": (
            "Records of any topics and queues, system topics too: one contiguous append, all or "
            "none. After a crash the last one of the log may be there in part, its first records."
        ),
        "requestBody": {"required": True, "content": json_content("AppendRequest", APPEND_EXAMPLE)},
        "responses": {str(status): answer for status, answer in answers.items()},
    }
