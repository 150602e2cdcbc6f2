"""The hot route of many messages by their ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import msgspec

from mqstore.query import bulk_merging, replies, views
from mqstore.query.message_routes import damage_problem, shard_of_id
from mqstore.query.service import QueryService
from mqstore.service import bodies, message_views
from mqstore.service.app import Api
from mqstore.service.endpoint import Endpoint, Hot
from mqstore.service.http import HotRequest, Reply, problem_of
from mqstore.service.message_structs import MessageIds
from mqstore.service.problems import Problem
from mqstore.storage.errors import MessageIdError, RecordError, StorageError
from mqstore.storage.formats import Record
from mqstore.storage.reads import MessageForm, by_message_ids, by_unique_keys
from mqstore.wire import messages as operations

_IDS: Final = msgspec.json.Decoder(MessageIds)


@dataclass(frozen=True, slots=True)
class _Bulk:
    """The ids of a request, with the limit and the form of its reply."""

    ids: Sequence[str]
    topic: str | None
    """The topic of unique keys; None for offset message ids."""
    max_bytes: int
    form: MessageForm


class BulkRoute:
    """Serves look-ups of many messages. Used on the event loop; reads run in the pool."""

    def __init__(self, service: QueryService) -> None:
        self._service = service
        self._shard = service.settings.shard
        self._shards = service.shards

    def add(self, api: Api) -> None:
        """Register the route with ``api``."""
        Endpoint(operations.MESSAGES_BY_ID, self._handle, Hot()).add(api)

    async def _handle(self, request: HotRequest) -> Reply:
        writer = self._service.writer
        try:
            found = await self._find_or_forward(request)
        except (Problem, StorageError) as error:
            raise writer.problem(error) from None
        return found if isinstance(found, Reply) else Reply(found, headers=(writer.header(),))

    async def _find_or_forward(self, request: HotRequest) -> bytes | Reply:
        """Encode the results, or return the reply of the shard that the request names."""
        wanted = bodies.parameters(operations.ByIdsParameters, request.query())
        content = await request.body()
        spec = bodies.read(_IDS, request, content)
        shards = self._shards
        other = shards.find_remote(wanted.shard, request.scope)
        if other is not None:
            return await shards.reply(other, shards.forwarded(request.scope, content))
        service = self._service
        form = service.body_form(wanted)
        bulk = _Bulk(
            spec.ids,
            spec.topic,
            service.reply_bytes_max(inflate=wanted.inflate),
            message_views.message_form(self._shard, form),
        )
        if shards.fans_out(request.scope):
            return await self._collect(request, bulk)
        return await service.run(partial(self._encode, bulk))

    # this shard ---------------------------------------------------------------------------

    def _encode(self, bulk: _Bulk) -> bytes:
        """Encode the results of this shard. Runs in the pool."""
        lookups, ids = self._service.lookups, bulk.ids
        if bulk.topic is None:
            found = by_message_ids(lookups, ids, bulk.max_bytes)
        else:
            found = by_unique_keys(lookups, bulk.topic, ids, bulk.max_bytes)
        results = [self._view(*each, bulk) for each in zip(ids, found, strict=False)]
        remaining = tuple(ids[len(results) :])
        return msgspec.json.encode(
            replies.MessagesById(results=tuple(results), remaining=remaining)
        )

    def _view(
        self, message_id: str, found: Record | StorageError, bulk: _Bulk
    ) -> replies.MessageResult:
        if isinstance(found, StorageError):
            problem = self._problem(found)
            return replies.MessageResult(id=message_id, problem=views.problem(problem))
        view: Any = message_views.message(found, bulk.form)
        return replies.MessageResult(id=message_id, message=view)

    def _problem(self, error: StorageError) -> Problem:
        damage = damage_problem(self._service, error) if isinstance(error, RecordError) else None
        return damage or problem_of(error)

    # all shards ---------------------------------------------------------------------------

    async def _collect(self, request: HotRequest, bulk: _Bulk) -> bytes:
        """Encode the results of all shards that the ids name."""
        service, own = self._service, self._shards.own
        parts = self._parts(bulk)
        requests = {}
        for shard, numbers in parts.items():
            spec = {"ids": [bulk.ids[each] for each in numbers], "topic": bulk.topic}
            if shard != own:
                requests[shard] = self._shards.forwarded(request.scope, msgspec.json.encode(spec))
        here = None
        if own in parts:
            mine = replace(bulk, ids=[bulk.ids[each] for each in parts[own]])
            here = partial(service.run, partial(self._encode, mine))
        async with self._shards.spread(requests, here) as spread:
            merge = partial(bulk_merging.messages, spread, bulk.ids, parts, bulk.max_bytes)
            return await service.run_admitted(merge)

    def _parts(self, bulk: _Bulk) -> dict[int, Sequence[int]]:
        """Return the shards to request, each with the numbers of the ids that it may have.

        Any shard may have a unique key. An offset message id names its shard.
        """
        shards = self._shards
        if bulk.topic is not None:
            return dict.fromkeys(shards.members.numbers, range(len(bulk.ids)))
        parts: dict[int, list[int]] = {}
        for number, each in enumerate(bulk.ids):
            parts.setdefault(self._holder(each), []).append(number)
        return {**parts}

    def _holder(self, message_id: str) -> int:
        """Return the shard whose STOREHOST is in an id; this one for any other text."""
        try:
            shard = shard_of_id(self._service, message_id)
        except MessageIdError:
            shard = None
        return self._shards.own if shard is None else shard
