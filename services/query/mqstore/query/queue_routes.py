"""Routes of queues: the bounds of a topic's queues, and the offsets of a time."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any

import msgspec
from fastapi import Query, Request, Response

from mqstore.query import bulk_merging, merging, replies, views
from mqstore.query.pull_route import LOOP_BYTES_MAX
from mqstore.query.routes import QueueId, json_reply, path_integer
from mqstore.query.service import QueryService
from mqstore.service import bodies
from mqstore.service.app import Api, TopicName
from mqstore.service.endpoint import Endpoint, Hot
from mqstore.service.http import HotRequest, Lane, problem_of
from mqstore.service.problems import Problem
from mqstore.storage.errors import QueryError, QueueUnknown, TopicUnknown
from mqstore.storage.reads import QueueRange, TimeLane
from mqstore.wire import queues as operations
from mqstore.wire.base import INT32_MAX
from mqstore.wire.parameters import ShardParameters
from mqstore.wire.times import EARLIEST_MS


class QueueRoutes:
    """Serves the bounds of queues and the queue offset of a time."""

    def __init__(self, service: QueryService) -> None:
        self._service = service
        self._shard = service.settings.shard

    def add(self, api: Api) -> None:
        """Register the routes with ``api``."""
        Endpoint(operations.QUEUES, self.queues).add(api)
        by_time = Hot(lane=self._time_lane)
        Endpoint(operations.OFFSET_BY_TIME, self.offset_by_time, by_time).add(api)
        Endpoint(operations.OFFSETS_BY_TIME, self.offsets_by_time).add(api)

    async def queues(self, topic: TopicName, request: Request) -> Response:
        """All queues of the topic, each with its shard and bounds."""
        service = self._service
        _ = service.reader

        def encode_own() -> bytes:
            """Encode the queues of this shard. Runs in the pool."""
            found = [views.queue(each, self._shard) for each in service.store.queues(topic)]
            return msgspec.json.encode(replies.Queues(topic=topic, queues=tuple(found)))

        if service.shards.fans_out(request.scope):
            async with service.shards.fan_out(request, lambda: service.run(encode_own)) as spread:
                return json_reply(await service.run_admitted(lambda: merging.queues(spread)))
        return json_reply(await service.run(encode_own))

    async def offset_by_time(
        self,
        topic: TopicName,
        queue: QueueId,
        wanted: Annotated[operations.OffsetParameters, Query()],
        request: Request,
    ) -> Response:
        """Queue offset of the first message that was stored at or after `timestamp`."""
        service, timestamp = self._service, wanted.timestamp
        service.shards.require_shard(request.scope)
        _ = service.reader

        def encode_offset() -> bytes:
            """Encode the offset and the bounds. Runs in the pool."""
            (found,) = self._find([(topic, queue)], timestamp)
            if isinstance(found, QueryError):
                raise found
            # The next search may take the lane.
            service.reader.queues.aim(topic, queue, found["offset"])
            return msgspec.json.encode(
                replies.QueueOffset(
                    topic=topic, queue_id=queue, timestamp=timestamp, shard=self._shard, **found
                )
            )

        return json_reply(await service.run(encode_offset))

    def _time_lane(self, request: HotRequest) -> Lane | None:
        """Return the lane of searches in a queue that is in memory; None for other parameters.

        Raises Problem (400).
        """
        service, given = self._service, request.query()
        if not given.keys() <= {"timestamp", "shard"}:
            return None
        topic = request.params["topic"]
        queue_id = path_integer("queue", request.params["queue"], INT32_MAX)
        others = {name: value for name, value in given.items() if name != "timestamp"}
        shard = bodies.parameters(ShardParameters, others).shard
        begin = msgspec.json.encode({"topic": topic, "queueId": queue_id, "timestamp": 0})[:-2]
        lane = TimeLane(begin, shard=self._shard, max_bytes=LOOP_BYTES_MAX)

        def find(timestamp: bytes, start: bytes, ending: bytes) -> bytes | None:
            at_ms, shards = int(timestamp), service.shards
            shards.require_shard(request.scope)
            if 0 < at_ms < EARLIEST_MS or shards.find_remote(shard, request.scope) is not None:
                return None
            store = service.store
            queue = store.reader.queues.known(topic, queue_id)
            if queue is None or store.reader.lookups.times.back_offsets:
                return None
            reply = lane.find(queue, at_ms, start, service.writer.field(), ending)
            if reply is not None:
                service.require_current(store)
            return reply

        return find

    async def offsets_by_time(self, wanted: operations.OffsetsByTime, request: Request) -> Response:
        """Queue offset, in each of the queues, of the first message that was stored at or after
        `timestamp`. Each queue of `queues` has a result, in the order of the request: its offset,
        or the problem that the request of this one queue would have. Then come all queues of each
        topic; a topic that is unknown has one result with `queueId` null. Over several shards a
        queue of `queues` needs its `shard`, and topics have the queues of all shards that
        replied."""
        service = self._service
        _ = service.reader
        shards, own = service.shards, service.shards.own
        parts, refused = self._parts(wanted.queues or [], request)
        if wanted.topics:
            for shard in shards.members.numbers if shards.fans_out(request.scope) else [own]:
                parts.setdefault(shard, [])

        async def encode_own() -> bytes:
            """Encode the results of this shard."""
            return await service.run(partial(self._encode_own, wanted, parts[own]))

        if not refused and parts.keys() == {own}:
            return json_reply(await encode_own())
        requests = {
            shard: shards.forwarded(request.scope, _part_of(wanted, numbers))
            for shard, numbers in parts.items()
            if shard != own
        }
        async with shards.spread(requests, encode_own if own in parts else None) as spread:
            merge = partial(bulk_merging.offsets, spread, wanted, parts, refused)
            return json_reply(await service.run_admitted(merge))

    def _parts(
        self, queues: Sequence[operations.QueueName], request: Request
    ) -> tuple[dict[int, list[int]], dict[int, Problem]]:
        """Return the numbers of queues by their shard, and the problems of those without one."""
        shards = self._service.shards
        parts: dict[int, list[int]] = {}
        refused: dict[int, Problem] = {}
        for number, each in enumerate(queues):
            try:
                if each.shard is None:
                    shards.require_shard(request.scope)
                entry = shards.find_remote(each.shard, request.scope)
            except Problem as problem:
                refused[number] = problem
            else:
                parts.setdefault(shards.own if entry is None else entry.shard, []).append(number)
        return parts, refused

    def _encode_own(self, wanted: operations.OffsetsByTime, numbers: Sequence[int]) -> bytes:
        """Encode the results of this shard. Runs in the pool."""
        given = wanted.queues or []
        names: list[tuple[str, int | None]] = [(given[n].topic, given[n].queue_id) for n in numbers]
        unknown: dict[str, QueryError] = {}
        for topic in dict.fromkeys(wanted.topics or ()):
            try:
                names += [(topic, each.queue_id) for each in self._service.store.queues(topic)]
            except TopicUnknown as error:
                unknown[topic] = error
                names.append((topic, None))
        queues = [(topic, queue_id) for topic, queue_id in names if queue_id is not None]
        found = iter(self._find(queues, wanted.timestamp))
        results = [
            self._result(topic, queue_id, unknown[topic] if queue_id is None else next(found))
            for topic, queue_id in names
        ]
        return msgspec.json.encode(
            replies.QueueOffsets(timestamp=wanted.timestamp, results=tuple(results))
        )

    def _result(
        self, topic: str, queue_id: int | None, found: dict[str, int] | QueryError
    ) -> replies.OffsetResult:
        at: dict[str, Any] = {"topic": topic, "queue_id": queue_id, "shard": self._shard}
        if isinstance(found, QueryError):
            return replies.OffsetResult(**at, problem=views.problem(problem_of(found)))
        return replies.OffsetResult(**(at | found))

    def _find(
        self, queues: Sequence[tuple[str, int]], timestamp_ms: int
    ) -> list[dict[str, int] | QueryError]:
        """Return the offset and the bounds of each queue, or the error of an unknown one."""
        found = self._service.lookups.offsets_by_time(queues, timestamp_ms)
        return [
            self._without_messages(*queue) if each is None else _fields(*each)
            for queue, each in zip(queues, found, strict=True)
        ]

    def _without_messages(self, topic: str, queue_id: int) -> dict[str, int] | QueryError:
        try:
            bounds = self._service.store.queue_range(topic, queue_id)
        except (QueueUnknown, TopicUnknown) as error:
            return error
        return _fields(bounds, bounds.max_offset)


def _fields(bounds: QueueRange, offset: int) -> dict[str, int]:
    return {
        "offset": offset,
        "min_offset": bounds.min_offset,
        "max_offset": bounds.max_offset,
    }


def _part_of(wanted: operations.OffsetsByTime, numbers: Sequence[int]) -> bytes:
    """Encode the request for one shard: some of the queues, and all topics."""
    queues = [wanted.queues[each] for each in numbers] if wanted.queues and numbers else None
    return wanted.model_copy(update={"queues": queues}).model_dump_json(by_alias=True).encode()
