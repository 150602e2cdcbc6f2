"""The hot route that pulls messages from a queue, as JSON or as the records of the log.

A pull that finds no message registers a watch and reads the queue again at each arrival, until a
message matches or its wait time is over.
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from mqstore.query import views
from mqstore.query.opened_store import OpenedStore
from mqstore.query.routes import path_integer
from mqstore.query.service import QueryService
from mqstore.service import bodies, message_views
from mqstore.service.app import Api
from mqstore.service.endpoint import Endpoint, Hot
from mqstore.service.forwarding import ForwardedRequest
from mqstore.service.http import (
    FutureReply,
    HotRequest,
    HotResult,
    Lane,
    Prepared,
    Reply,
    await_while_connected,
)
from mqstore.service.limits import client_of
from mqstore.service.membership import ShardEntry
from mqstore.service.message_bodies import BodyForm
from mqstore.service.problems import Problem
from mqstore.storage import topic_names
from mqstore.storage.errors import QueueUnknown, StorageError
from mqstore.storage.reads import (
    LANE_COUNT_MAX,
    Pull,
    PullFilter,
    PullLane,
    PullStatus,
    Slices,
    SqlFilter,
)
from mqstore.wire import queues as operations
from mqstore.wire.base import INT32_MAX

LOOP_BYTES_MAX: Final = 256 << 10
"""Maximum bytes of records that are read on the event loop, in about 0.1 ms."""
IN_MEMORY_S: Final = 2.0
"""Seconds for which the end of a queue counts as in memory after it was read."""
IN_MEMORY_MAX: Final = 10_000
"""Maximum number of queues whose ends are remembered as in memory."""
RECORDS_TYPE: Final = operations.RECORDS_TYPE.encode()
_EMPTY_STATUSES: Final = frozenset(
    {
        PullStatus.OFFSET_OVERFLOW_ONE,
        PullStatus.NO_MATCHED_MESSAGE,
        PullStatus.NO_MESSAGE_IN_QUEUE,
    }
)


@dataclass(slots=True)
class _PullRequest:
    """A parsed pull. ``offset`` advances while a filtered pull waits."""

    topic: str
    queue_id: int
    offset: int | None
    count: int
    wait_s: float
    tags: str | None
    sql: str | None
    form: BodyForm | None
    """How message bodies are shown; None for records of the log."""
    shard: int | None
    group: str
    """The consumer group, for the metrics; empty if the request names none."""
    wanted: PullFilter | None = None
    """The compiled filter of ``tags`` or ``sql``; None before it is compiled, and without one."""

    @property
    def inflates(self) -> bool:
        """Whether compressed bodies are inflated."""
        return self.form is not None and self.form.inflates


@dataclass(slots=True)
class _PullResult:
    """The encoded result of a pull."""

    is_at_end: bool
    next_offset: int
    count: int
    size: int = 0
    """Bytes of the records."""
    body: bytes = b""
    content_type: bytes = b"application/json"
    headers: tuple[tuple[bytes, bytes], ...] = ()


class PullRoute:
    """Serves pulls on the event loop; reads that may wait for the disk run in the pool."""

    def __init__(self, service: QueryService) -> None:
        self._service = service
        self._shard = service.settings.shard
        self._members = service.shards.members
        self._loop_bytes_max = min(LOOP_BYTES_MAX, service.settings.max_answer_bytes)

    def add(self, api: Api) -> None:
        """Register the route with ``api``."""
        self._api = api
        Endpoint(operations.PULL, self._handle, Hot(prepare=self._prepare)).add(api)

    async def _handle(self, request: HotRequest) -> Reply:
        try:
            requested = self._parse(request)
        except (Problem, StorageError) as error:
            raise self._service.writer.problem(error) from None
        return await await_while_connected(request, self._serve(request, requested))

    def _prepare(self, request: HotRequest) -> Prepared:
        """Prepare a pull: a plain one of messages in memory takes its lane, any other is a task."""
        requested = self._parse(request)

        def begin(_: bytes, __: Mapping[str, str]) -> HotResult:
            pulling = self._serve(request, dataclasses.replace(requested))
            return FutureReply(asyncio.create_task(pulling), needs_client=True)

        return Prepared(begin, lane=self._lane(request, requested))

    def _lane(self, request: HotRequest, requested: _PullRequest) -> Lane | None:
        """Return the lane of pulls from a queue; None for a pull that is not plain."""
        service, form = self._service, requested.form
        if self._is_filtered(requested) or requested.count > LANE_COUNT_MAX:
            return None
        if requested.inflates:
            return None
        message_form = None if form is None else message_views.message_form(self._shard, form)
        lane = PullLane(
            requested.count,
            max_bytes=self._loop_bytes_max,
            shard=self._shard,
            sends_empty=not requested.wait_s,
            form=message_form,
        )

        def pull(offset: bytes, start: bytes, ending: bytes) -> bytes | None:
            if self._other_shard(request, requested) is not None:
                return None
            store = service.store
            if not store.may_consume(requested.topic, requested.group):
                return None
            queue = store.reader.queues.pulled(requested.topic, requested.queue_id)
            if queue is None:
                return None
            reply = lane.pull(queue, int(offset), start, service.writer.field(), ending)
            if reply is not None:
                service.require_current(store)
                service.traffic.count(requested.topic, requested.group, lane.messages, lane.size)
            return reply

        return pull

    async def _serve(self, request: HotRequest, requested: _PullRequest) -> Reply:
        """Return the reply to a pull. Raises Problem."""
        try:
            return await self._pull_or_forward(request, requested)
        except (Problem, StorageError) as error:
            raise self._service.writer.problem(error) from None

    async def _pull_or_forward(self, request: HotRequest, requested: _PullRequest) -> Reply:
        """Pull here, or forward to the requested shard. Raises Problem, StorageError."""
        service = self._service
        other = self._other_shard(request, requested)
        if other is not None:
            forwarded = ForwardedRequest.of(request.scope, str(service.shards.own))
            return await service.shards.reply(other, forwarded)
        if self._is_filtered(requested):
            client = client_of(request.scope)
            requested.wanted = await service.compile_filter(
                requested.topic, requested.tags, requested.sql, client
            )
        store = service.store
        answer = self._read_in_memory(requested)
        if answer is None:
            answer = await service.run(lambda: self._read(requested))
            self._note_in_memory(requested)
        if requested.wait_s and answer.is_at_end:
            with self._api.limits.polls.holding(client_of(request.scope)):
                answer = await self._await_messages(requested, answer)
            self._api.auth.check(request.scope["headers"], operations.PULL.role)
        return self._reply(store, requested, answer)

    def _reply(self, store: OpenedStore, requested: _PullRequest, answer: _PullResult) -> Reply:
        """Return the reply. Raises Problem if the store was replaced during the pull."""
        service = self._service
        service.require_current(store)
        service.traffic.count(requested.topic, requested.group, answer.count, answer.size)
        headers = (service.writer.header(), *answer.headers)
        return Reply(answer.body, content_type=answer.content_type, headers=headers)

    def _other_shard(self, request: HotRequest, requested: _PullRequest) -> ShardEntry | None:
        """Return the requested shard if it is another one, else None. Raises Problem."""
        if requested.shard is None and self._members.alone:
            return None
        shards = self._service.shards
        if requested.shard is None:
            shards.require_shard(request.scope)
        return shards.find_remote(requested.shard, request.scope)

    def _is_filtered(self, requested: _PullRequest) -> bool:
        if requested.tags is not None or requested.sql is not None:
            return True
        return self._service.settings.filter_support_retry and requested.topic.startswith(
            topic_names.RETRY_PREFIX
        )

    async def _await_messages(self, requested: _PullRequest, found: _PullResult) -> _PullResult:
        """Wait for messages. Return the last answer, which is empty if the time is over."""
        deadline = asyncio.get_running_loop().time() + requested.wait_s
        while found.is_at_end and await self._await_arrival(requested, found, deadline):
            self._note_in_memory(requested)  # the messages that just arrived are in memory
            in_memory = self._read_in_memory(requested)
            if in_memory is None:
                in_memory = await self._service.run_admitted(lambda: self._read(requested))
            found = in_memory
        return found

    async def _await_arrival(
        self, requested: _PullRequest, found: _PullResult, deadline: float
    ) -> bool:
        """Wait for a message behind an answer. Return False if the time is over."""
        arrivals = self._service.arrivals
        if arrivals.interrupted:
            return False
        requested.offset = found.next_offset
        left = deadline - asyncio.get_running_loop().time()
        with arrivals.watch((requested.topic, requested.queue_id, found.next_offset)) as arrival:
            await asyncio.wait({arrival}, timeout=left)
        return arrival.done()

    def _read_in_memory(self, requested: _PullRequest) -> _PullResult | None:
        """Return the answer if the event loop can read it from memory, None if the pool must."""
        if requested.offset is None or requested.wanted is not None:
            return None
        if requested.inflates:
            return None
        place = (requested.topic, requested.queue_id)
        store = self._service.store
        if not store.may_consume(requested.topic, requested.group):
            return None
        if time.monotonic() > store.in_memory_until.get(place, 0.0):
            return None
        pulls, count, most = store.reader.pulls, requested.count, self._loop_bytes_max
        found: Pull | Slices | None
        if requested.form is None:
            found = pulls.in_memory(Slices, *place, requested.offset, count=count, max_bytes=most)
        else:
            found = pulls.in_memory(Pull, *place, requested.offset, count=count, max_bytes=most)
        return None if found is None else self._encode_result(requested, found)

    def _note_in_memory(self, requested: _PullRequest) -> None:
        """Remember that the end of the queue was just read."""
        until = self._service.store.in_memory_until
        if len(until) >= IN_MEMORY_MAX:
            until.clear()
        until[requested.topic, requested.queue_id] = time.monotonic() + IN_MEMORY_S

    def _parse(self, request: HotRequest) -> _PullRequest:
        wanted = bodies.parameters(operations.PullParameters, request.query())
        return _PullRequest(
            request.params["topic"],
            path_integer("queue", request.params["queue"], INT32_MAX),
            wanted.offset,
            wanted.max,
            wanted.wait,
            wanted.tags,
            wanted.sql,
            None if wants_records(request) else self._service.body_form(wanted),
            wanted.shard,
            _group(wanted.group),
        )

    def _read(self, requested: _PullRequest) -> _PullResult:
        return self._encode_result(requested, self._pull(requested))

    def _pull(self, requested: _PullRequest) -> Pull | Slices:
        self._service.store.require_consuming(requested.topic, requested.group)
        if not isinstance(requested.wanted, SqlFilter):
            return self._pull_by(requested, requested.wanted)
        known = self._service.subscriptions(requested.topic)
        informed = requested.wanted.with_subscription_bits(known)
        found = self._pull_by(requested, informed)
        if informed is requested.wanted or known == self._service.subscriptions(requested.topic):
            return found
        # Subscriptions changed meanwhile: the bits may have been those of another expression.
        return self._pull_by(requested, requested.wanted)

    def _pull_by(self, requested: _PullRequest, wanted: PullFilter | None) -> Pull | Slices:
        service = self._service
        pulls = service.reader.pulls
        try:
            return (pulls.slices if requested.form is None else pulls.pull)(
                requested.topic,
                requested.queue_id,
                requested.offset,
                count=requested.count,
                max_bytes=service.reply_bytes_max(inflate=requested.inflates),
                wanted=wanted,
            )
        except QueueUnknown:
            # Raises for an unknown queue; a topic without messages is no error.
            service.store.queue_range(requested.topic, requested.queue_id)
            return Pull(PullStatus.NO_MESSAGE_IN_QUEUE, [], [], 0, 0, 0)

    def _encode_result(self, requested: _PullRequest, found: Pull | Slices) -> _PullResult:
        if requested.wanted is None:
            # The next pull may take the lane.
            place = requested.topic, requested.queue_id
            self._service.reader.queues.aim(*place, found.next_offset)
        answer = _PullResult(_is_at_end(found), found.next_offset, len(found))
        if requested.form is None:
            parts = found.parts if isinstance(found, Slices) else ()
            answer.body = b"".join(parts)
            answer.size = len(answer.body)
            answer.content_type = RECORDS_TYPE
            answer.headers = self._headers(found)
        else:
            assert isinstance(found, Pull)
            answer.body = views.pull(found, self._shard, requested.form)
            answer.size = sum([each.size for each in found.records])
        return answer

    def _headers(self, found: Pull | Slices) -> tuple[tuple[bytes, bytes], ...]:
        return (
            (b"x-mqstore-status", found.status.value.encode()),
            (b"x-mqstore-next", b"%d" % found.next_offset),
            (b"x-mqstore-min-offset", b"%d" % found.min_offset),
            (b"x-mqstore-max-offset", b"%d" % found.max_offset),
            (b"x-mqstore-messages", b"%d" % len(found)),
            (b"x-mqstore-unreadable", b"%d" % len(found.unreadable)),
            (b"x-mqstore-self-checked", b"%d" % _self_checked(found)),
            (b"x-mqstore-shard", b"%d" % self._shard),
        )


def _group(name: str | None) -> str:
    """Return the name of the group, empty for None. Raises GroupNameError."""
    if name is not None:
        topic_names.check_group(name)
    return name or ""


def wants_records(request: HotRequest) -> bool:
    """Return whether the request accepts records of the log instead of JSON."""
    accepted = (request.header(b"accept") or b"").lower().split(b",")
    return any(each.partition(b";")[0].strip() == RECORDS_TYPE for each in accepted)


def _self_checked(found: Pull | Slices) -> int:
    """Return the number of records that only their own checks vouch for."""
    return found.self_checked if isinstance(found, Slices) else 0


def _is_at_end(found: Pull | Slices) -> bool:
    nothing = not len(found) and not found.unreadable
    return nothing and found.status in _EMPTY_STATUSES and found.next_offset >= found.max_offset
