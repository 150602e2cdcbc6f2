"""Pulling from a queue: a hot route. JSON, or the records as they stand in the log.

A pull that has to wait registers, then waits unless something has come meanwhile, and looks again
at each arrival until something matches or its time is over.
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from mqstore.query import views
from mqstore.query.bodies import BodyForm
from mqstore.query.opened_store import OpenedStore
from mqstore.query.parameters import Parameters, path_integer
from mqstore.query.service import QueryService
from mqstore.service import problems
from mqstore.service.app import Api
from mqstore.service.endpoint import Endpoint, Hot
from mqstore.service.forwarding import ForwardedRequest
from mqstore.service.http import (
    DeferredReply,
    HotRequest,
    HotResult,
    Prepared,
    Reply,
    await_while_connected,
    problem_of,
    refuse_unknown,
)
from mqstore.service.limits import client_of
from mqstore.service.membership import ShardEntry
from mqstore.service.problems import Problem
from mqstore.storage import topic_names
from mqstore.storage.errors import QueueUnknown, StorageError
from mqstore.storage.reads import Pull, PullFilter, PullStatus, Slices, SqlFilter
from mqstore.wire.base import INT32_MAX, INT64_MAX
from mqstore.wire.limits import COUNT_MAX, PULL_COUNT_DEFAULT, PULL_WAIT_MAX_S
from mqstore.wire.operations import queues as operations

LOOP_BYTES_MAX: Final = 256 << 10
"""Of records that are answered on the event loop: about a tenth of a millisecond."""
FRESH_S: Final = 2.0
FRESH_MAX: Final = 10_000
RECORDS_TYPE: Final = operations.RECORDS_TYPE.encode()
PARAMETERS: Final = (
    *("offset", "max", "wait", "tags", "sql", "body", "bodyMax", "inflate", "shard", "group"),
)
_WAITING: Final = frozenset(
    {
        PullStatus.OFFSET_OVERFLOW_ONE,
        PullStatus.NO_MATCHED_MESSAGE,
        PullStatus.NO_MESSAGE_IN_QUEUE,
    }
)


@dataclass(slots=True)
class _PullRequest:
    """What one request asks for; ``offset`` goes along as a filtered one waits."""

    topic: str
    queue_id: int
    offset: int | None
    count: int
    wait_s: float
    tags: str | None
    sql: str | None
    form: BodyForm | None
    """How messages are shown; None for records as they stand."""
    shard: int | None
    group: str
    """The consumer group, for the metrics; empty where the request names none."""
    wanted: PullFilter | None = None
    """The filter of ``tags`` or ``sql``, once it is compiled."""

    @property
    def inflates(self) -> bool:
        return self.form is not None and self.form.inflates


@dataclass(slots=True)
class _Answer:
    """What was found, as it is sent."""

    is_at_end: bool
    next_offset: int
    count: int
    size: int = 0
    """Bytes of the records."""
    body: bytes = b""
    content_type: bytes = b"application/json"
    headers: tuple[tuple[bytes, bytes], ...] = ()


class PullRoute:
    """Its handlers run on the event loop: what is not in memory is looked up in the pool."""

    def __init__(self, service: QueryService) -> None:
        self._service = service
        self._shard = service.settings.shard
        self._members = service.shards.members

    def add(self, api: Api) -> None:
        Endpoint(operations.PULL, self._answer, Hot(prepare=self._prepare)).add(api)

    async def _answer(self, request: HotRequest) -> Reply:
        try:
            requested = self._parse(request)
        except (Problem, StorageError) as error:
            raise self._with_writer(error) from None
        return await await_while_connected(request, self._pulled(request, requested))

    def _prepare(self, request: HotRequest) -> Prepared:
        """A pull of messages in memory is answered at once; a task does any other."""
        requested = self._parse(request)

        def begin(_: bytes, __: Mapping[str, str]) -> HotResult:
            found = None
            if self._other(request, requested) is None and not self._is_filtered(requested):
                found = self._in_memory(requested)
            if found is not None and not (requested.wait_s and found.is_at_end):
                return self._reply(self._service.store, requested, found)
            pulling = self._pulled(request, dataclasses.replace(requested))
            return DeferredReply(asyncio.create_task(pulling), needs_client=True)

        return Prepared(begin)

    async def _pulled(self, request: HotRequest, requested: _PullRequest) -> Reply:
        """Raises Problem."""
        try:
            return await self._found(request, requested)
        except (Problem, StorageError) as error:
            raise self._with_writer(error) from None

    def _with_writer(self, error: Problem | StorageError) -> Problem:
        problem = error if isinstance(error, Problem) else problem_of(error)
        name, value = self._service.writer.header()
        problem.headers[name.decode()] = value.decode()
        return problem

    async def _found(self, request: HotRequest, requested: _PullRequest) -> Reply:
        """Raises Problem, StorageError."""
        service = self._service
        other = self._other(request, requested)
        if other is not None:
            forwarded = ForwardedRequest.of(request.scope, str(service.shards.own))
            return await service.shards.reply(other, forwarded)
        if self._is_filtered(requested):
            client = client_of(request.scope)
            requested.wanted = await service.filter(
                requested.topic, requested.tags, requested.sql, client
            )
        store = service.store
        answer = self._in_memory(requested)
        if answer is None:
            answer = await service.run(lambda: self._look(requested))
            self._looked_at(requested)
        if requested.wait_s and answer.is_at_end:
            answer = await self._awaited(requested, answer)
        return self._reply(store, requested, answer)

    def _reply(self, store: OpenedStore, requested: _PullRequest, answer: _Answer) -> Reply:
        """Raises Problem for files that are not the store's any more."""
        service = self._service
        service.require(store)
        service.traffic.count(requested.topic, requested.group, answer.count, answer.size)
        headers = (service.writer.header(), *answer.headers)
        return Reply(answer.body, content_type=answer.content_type, headers=headers)

    def _other(self, request: HotRequest, requested: _PullRequest) -> ShardEntry | None:
        """The requested shard, where it is another. Raises Problem."""
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

    async def _awaited(self, requested: _PullRequest, found: _Answer) -> _Answer:
        """The first answer with messages, or the last one when the time is over."""
        if len(self._service.arrivals) >= self._service.settings.max_open_polls:
            raise Problem(problems.OVERLOADED, "too many long polls are open; try again later")
        deadline = asyncio.get_running_loop().time() + requested.wait_s
        while found.is_at_end and await self._arrived(requested, found, deadline):
            self._looked_at(requested)  # what came this moment is in memory
            at_once = self._in_memory(requested)
            if at_once is None:
                at_once = await self._service.run_in_turn(lambda: self._look(requested))
            found = at_once
        return found

    async def _arrived(self, requested: _PullRequest, found: _Answer, deadline: float) -> bool:
        """Wait for what comes behind an answer; False when nothing did."""
        arrivals = self._service.arrivals
        if arrivals.interrupted:
            return False
        requested.offset = found.next_offset
        left = deadline - asyncio.get_running_loop().time()
        with arrivals.watch((requested.topic, requested.queue_id, found.next_offset)) as arrival:
            await asyncio.wait({arrival}, timeout=left)
        return arrival.done()

    def _in_memory(self, requested: _PullRequest) -> _Answer | None:
        """What can be answered here and now, on the event loop; None for the pool."""
        if requested.offset is None or requested.wanted is not None:
            return None
        if requested.inflates:
            return None
        place = (requested.topic, requested.queue_id)
        store = self._service.store
        if time.monotonic() > store.in_memory_until.get(place, 0.0):
            return None
        pulls, count = store.reader.pulls, requested.count
        most = min(LOOP_BYTES_MAX, self._service.settings.max_answer_bytes)
        found: Pull | Slices | None
        if requested.form is None:
            found = pulls.in_memory(Slices, *place, requested.offset, count=count, max_bytes=most)
        else:
            found = pulls.in_memory(Pull, *place, requested.offset, count=count, max_bytes=most)
        return None if found is None else self._answer_of(requested, found)

    def _looked_at(self, requested: _PullRequest) -> None:
        """Its queue's end has just been read."""
        until = self._service.store.in_memory_until
        if len(until) >= FRESH_MAX:
            until.clear()
        until[requested.topic, requested.queue_id] = time.monotonic() + FRESH_S

    def _parse(self, request: HotRequest) -> _PullRequest:
        given = request.query()
        refuse_unknown(given, PARAMETERS)
        parameters = Parameters(given)
        body = parameters.body()
        topic = request.params["topic"]
        return _PullRequest(
            topic,
            path_integer("queue", request.params["queue"], INT32_MAX),
            parameters.integer("offset", 0, INT64_MAX),
            parameters.integer("max", 1, COUNT_MAX) or PULL_COUNT_DEFAULT,
            parameters.seconds("wait", PULL_WAIT_MAX_S),
            parameters.text("tags"),
            parameters.text("sql"),
            None
            if wants_records(request)
            else self._service.form(body.shape, body.max_bytes, inflate=body.inflate),
            parameters.integer("shard", 0, INT32_MAX),
            _group(parameters.text("group")),
        )

    def _look(self, requested: _PullRequest) -> _Answer:
        return self._answer_of(requested, self._pull(requested))

    def _pull(self, requested: _PullRequest) -> Pull | Slices:
        if not isinstance(requested.wanted, SqlFilter):
            return self._pull_by(requested, requested.wanted)
        known = self._service.subscriptions(requested.topic)
        informed = requested.wanted.informed(known)
        found = self._pull_by(requested, informed)
        if informed is requested.wanted or known == self._service.subscriptions(requested.topic):
            return found
        return self._pull_by(
            requested, requested.wanted
        )  # the bits may have been another expression's

    def _pull_by(self, requested: _PullRequest, wanted: PullFilter | None) -> Pull | Slices:
        service = self._service
        pulls = service.reader.pulls
        try:
            return (pulls.slices if requested.form is None else pulls.pull)(
                requested.topic,
                requested.queue_id,
                requested.offset,
                count=requested.count,
                max_bytes=service.answer_bytes(inflate=requested.inflates),
                wanted=wanted,
            )
        except QueueUnknown:
            service.queue_range(
                requested.topic, requested.queue_id
            )  # a topic without messages is no error
            return Pull(PullStatus.NO_MESSAGE_IN_QUEUE, [], [], 0, 0, 0)

    def _answer_of(self, requested: _PullRequest, found: Pull | Slices) -> _Answer:
        answer = _Answer(_is_at_end(found), found.next_offset, len(found))
        if requested.form is None:
            parts = found.parts if isinstance(found, Slices) else ()
            answer.body = b"".join(parts)
            answer.size = len(answer.body)
            answer.content_type = RECORDS_TYPE
            answer.headers = self._headers(found)
        else:
            assert isinstance(found, Pull)
            answer.body = msgspec.json.encode(views.pull(found, self._shard, requested.form))
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
    """Raises GroupNameError."""
    if name is not None:
        topic_names.check_group(name)
    return name or ""


def wants_records(request: HotRequest) -> bool:
    accepted = (request.header(b"accept") or b"").lower().split(b",")
    return any(each.partition(b";")[0].strip() == RECORDS_TYPE for each in accepted)


def _self_checked(found: Pull | Slices) -> int:
    """Records of an answer for which only their own checks vouch."""
    return found.self_checked if isinstance(found, Slices) else 0


def _is_at_end(found: Pull | Slices) -> bool:
    nothing = not len(found) and not found.unreadable
    return nothing and found.status in _WAITING and found.next_offset >= found.max_offset
