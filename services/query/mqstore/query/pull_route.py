"""Pulling from a queue: a hot route. JSON, or the records as they stand in the log.

A pull that has to wait registers, then waits unless something has come meanwhile, and looks again
at each arrival until something matches or its time is over.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from mqstore.query import views
from mqstore.query.bodies import BodyForm, BodyShape
from mqstore.query.parameters import Parameters, path_integer
from mqstore.query.routes import BODY_MAX, COUNT_MAX, INT64_MAX, QUEUE_ID_MAX
from mqstore.query.service import QueryService
from mqstore.service import problems
from mqstore.service.app import INT32_MAX, Api
from mqstore.service.auth import Role
from mqstore.service.endpoint import Endpoint, Hot
from mqstore.service.forwarded import Asking
from mqstore.service.http import (
    HotRequest,
    problem_of,
    refuse_unknown,
    while_there,
)
from mqstore.service.limits import ClientGone, client_of
from mqstore.service.membership import ShardEntry
from mqstore.service.problems import Problem
from mqstore.service.reply import Reply
from mqstore.storage.codec import topic_names
from mqstore.storage.errors import QueueUnknown, StorageError
from mqstore.storage.lookup.answers import Pull, PullStatus, Slices
from mqstore.storage.lookup.pull_filter import PullFilter, SqlFilter
from mqstore.wire import queues
from mqstore.wire.examples import lookups as examples

COUNT_DEFAULT: Final = 32
LOOP_BYTES_MAX: Final = 256 << 10
"""Of records that are answered on the event loop: about a tenth of a millisecond."""
FRESH_S: Final = 2.0
FRESH_MAX: Final = 10_000
WAIT_MAX_S: Final = 30
RECORDS_TYPE: Final = b"application/x-rocketmq-records"
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
class _Asked:
    """What one request asks for; ``offset`` goes along as a filtered one waits."""

    topic: str
    queue_id: int
    offset: int | None
    count: int
    wait_s: float
    wanted: PullFilter | None
    form: BodyForm | None
    """How messages are shown; None for records as they stand."""
    shard: int | None
    group: str
    """The consumer group, for the metrics; empty where the request names none."""

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
        records = {RECORDS_TYPE.decode(): {"schema": {"type": "string", "format": "binary"}}}
        Endpoint(
            path="/v1/topics/{topic}/queues/{queue}/messages",
            role=Role.CONSUME,
            handler=self._answer,
            summary="Messages of a queue, from an offset; waits for arrivals when asked to",
            tag="queues",
            reply=queues.Pull,
            example=examples.PULL,
            text="What was found, and where to go on.",
            contents={200: ("", records)},
            problems=(
                problems.BAD_FILTER,
                problems.GROUP_INVALID,
                problems.SHARD_NEEDED,
                *problems.OF_SHARDS,
                problems.TOPIC_UNKNOWN,
                problems.QUEUE_UNKNOWN,
            ),
            hot=Hot(name="pull", description=DESCRIPTION, parameters=QUERY_PARAMETERS),
        ).add(api)

    async def _answer(self, request: HotRequest) -> Reply:
        try:
            return await self._pulled(request)
        except StorageError as error:
            raise self._with_writer(problem_of(error)) from error
        except Problem as problem:
            raise self._with_writer(problem) from None

    def _with_writer(self, problem: Problem) -> Problem:
        name, value = self._service.writer.header()
        problem.headers[name.decode()] = value.decode()
        return problem

    async def _pulled(self, request: HotRequest) -> Reply:
        asked = await self._asked(request)
        service = self._service
        if asked.shard is not None or not self._members.alone:
            other = self._other(request, asked)
            if other is not None:
                asking = Asking.of(request.scope, str(service.shards.own))
                return await while_there(request, service.shards.reply(other, asking))
        store = service.store
        answer = self._in_memory(asked)
        if answer is None:
            answer = await service.run(lambda: self._look(asked))
            self._looked_at(asked)
        if asked.wait_s and answer.is_at_end:
            answer = await self._awaited(request, asked, answer)
        service.require(store)
        service.traffic.count(asked.topic, asked.group, answer.count, answer.size)
        headers = (service.writer.header(), *answer.headers)
        return Reply(answer.body, content_type=answer.content_type, headers=headers)

    def _other(self, request: HotRequest, asked: _Asked) -> ShardEntry | None:
        """The shard that is asked, where it is another. Raises Problem."""
        shards = self._service.shards
        if asked.shard is None:
            shards.require_shard(request.scope)
        return shards.other(asked.shard, request.scope)

    async def _awaited(self, request: HotRequest, asked: _Asked, found: _Answer) -> _Answer:
        """The first answer with messages, or the last one when the time is over.

        Raises ClientGone, so that nothing waits for a client that does not.
        """
        if len(self._service.arrivals) >= self._service.settings.max_open_polls:
            raise Problem(problems.OVERLOADED, "too many long polls are open; try again later")
        loop = asyncio.get_running_loop()
        deadline = loop.time() + asked.wait_s
        gone = loop.create_task(request.gone())
        try:
            while found.is_at_end and await self._arrived(asked, found, gone, deadline):
                self._looked_at(asked)  # what came this moment is in memory
                at_once = self._in_memory(asked)
                if at_once is None:
                    at_once = await self._service.run_in_turn(lambda: self._look(asked))
                found = at_once
        finally:
            gone.cancel()
        return found

    async def _arrived(
        self, asked: _Asked, found: _Answer, gone: asyncio.Task[None], deadline: float
    ) -> bool:
        """Wait for what comes behind an answer; False when nothing did. Raises ClientGone."""
        arrivals = self._service.arrivals
        if arrivals.interrupted:
            return False
        asked.offset = found.next_offset
        left = deadline - asyncio.get_running_loop().time()
        with arrivals.watch((asked.topic, asked.queue_id, found.next_offset)) as arrival:
            await asyncio.wait({arrival, gone}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        if gone.done():
            raise ClientGone
        return arrival.done()

    def _in_memory(self, asked: _Asked) -> _Answer | None:
        """What can be answered here and now, on the event loop; None for the pool."""
        if asked.offset is None or asked.wanted is not None:
            return None
        if asked.inflates:
            return None
        place = (asked.topic, asked.queue_id)
        store = self._service.store
        if time.monotonic() > store.in_memory_until.get(place, 0.0):
            return None
        pulls, count = store.reader.pulls, asked.count
        most = min(LOOP_BYTES_MAX, self._service.settings.max_answer_bytes)
        found: Pull | Slices | None
        if asked.form is None:
            found = pulls.in_memory(Slices, *place, asked.offset, count=count, max_bytes=most)
        else:
            found = pulls.in_memory(Pull, *place, asked.offset, count=count, max_bytes=most)
        return None if found is None else self._answer_of(asked, found)

    def _looked_at(self, asked: _Asked) -> None:
        """Its queue's end has just been read."""
        until = self._service.store.in_memory_until
        if len(until) >= FRESH_MAX:
            until.clear()
        until[asked.topic, asked.queue_id] = time.monotonic() + FRESH_S

    async def _asked(self, request: HotRequest) -> _Asked:
        given = request.query()
        refuse_unknown(given, PARAMETERS)
        parameters = Parameters(given)
        body = parameters.body()
        topic = request.params["topic"]
        return _Asked(
            topic,
            path_integer("queue", request.params["queue"], QUEUE_ID_MAX),
            parameters.integer("offset", 0, INT64_MAX),
            parameters.integer("max", 1, COUNT_MAX) or COUNT_DEFAULT,
            parameters.seconds("wait", WAIT_MAX_S),
            await self._service.filter(
                *(topic, parameters.text("tags"), parameters.text("sql")), client_of(request.scope)
            ),
            None
            if wants_records(request)
            else self._service.form(body.shape, body.max_bytes, inflate=body.inflate),
            parameters.integer("shard", 0, INT32_MAX),
            _group(parameters.text("group")),
        )

    def _look(self, asked: _Asked) -> _Answer:
        return self._answer_of(asked, self._pull(asked))

    def _pull(self, asked: _Asked) -> Pull | Slices:
        if not isinstance(asked.wanted, SqlFilter):
            return self._pull_by(asked, asked.wanted)
        known = self._service.subscriptions(asked.topic)
        informed = asked.wanted.informed(known)
        found = self._pull_by(asked, informed)
        if informed is asked.wanted or known == self._service.subscriptions(asked.topic):
            return found
        return self._pull_by(asked, asked.wanted)  # the bits may have been another expression's

    def _pull_by(self, asked: _Asked, wanted: PullFilter | None) -> Pull | Slices:
        service = self._service
        pulls = service.reader.pulls
        try:
            return (pulls.slices if asked.form is None else pulls.pull)(
                asked.topic,
                asked.queue_id,
                asked.offset,
                count=asked.count,
                max_bytes=service.answer_bytes(inflate=asked.inflates),
                wanted=wanted,
            )
        except QueueUnknown:
            service.queue_range(asked.topic, asked.queue_id)  # a topic without messages is no error
            return Pull(PullStatus.NO_MESSAGE_IN_QUEUE, [], [], 0, 0, 0)

    def _answer_of(self, asked: _Asked, found: Pull | Slices) -> _Answer:
        answer = _Answer(_is_at_end(found), found.next_offset, len(found))
        if asked.form is None:
            parts = found.parts if isinstance(found, Slices) else ()
            answer.body = b"".join(parts)
            answer.size = len(answer.body)
            answer.content_type = RECORDS_TYPE
            answer.headers = self._headers(found)
        else:
            assert isinstance(found, Pull)
            answer.body = msgspec.json.encode(views.pull(found, self._shard, asked.form))
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


def _parameter(name: str, schema: dict[str, Any], text: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "in": "query", "schema": schema, "description": text, **more}


DESCRIPTION: Final = (
    "`status` is RocketMQ's; go on at `next` whatever it is. With `tags` or `sql` 10,000 "
    "entries are looked at before the answer is empty (fewer messages with an expression of "
    "more than 64 characters), and a `wait` goes on until a message "
    "matches. With `Accept: application/x-rocketmq-records` the answer is the records as they "
    "stand in the log, one after the other, as RocketMQ's clients decode them; all else is in "
    "`X-Mqstore-…` headers (Status, Next, Min-Offset, Max-Offset, Messages, Unreadable, Shard)."
)
QUERY_PARAMETERS: Final[tuple[dict[str, Any], ...]] = (
    {
        "name": "topic",
        "in": "path",
        "required": True,
        "schema": {"type": "string", "pattern": "^[%|a-zA-Z0-9_-]+$", "maxLength": 127},
        "example": "orders",
    },
    {
        "name": "queue",
        "in": "path",
        "required": True,
        "schema": {"type": "integer", "minimum": 0, "maximum": QUEUE_ID_MAX},
        "example": 0,
    },
    _parameter(
        "shard",
        {"type": "integer", "minimum": 0, "maximum": INT32_MAX},
        "Whose queue it is; needed where there are several shards. Any of them answers for it.",
    ),
    _parameter(
        "offset",
        {"type": "integer", "minimum": 0, "maximum": INT64_MAX},
        "Queue offset to begin with; without it, the queue's first message.",
    ),
    _parameter(
        "max",
        {"type": "integer", "minimum": 1, "maximum": COUNT_MAX, "default": COUNT_DEFAULT},
        "Messages, at most.",
    ),
    _parameter(
        "wait",
        {"type": "number", "minimum": 0, "maximum": WAIT_MAX_S, "default": 0},
        "Seconds to wait at the queue's end.",
    ),
    _parameter(
        "tags",
        {"type": "string"},
        "Only messages with one of these tags: `A || B`; `*` is all.",
        example="created || changed",
    ),
    _parameter(
        "sql",
        {"type": "string"},
        "Only messages whose properties this SQL92 expression is true of; not with `tags`. "
        "Where a group has subscribed with the very expression, bitmaps tell which they are.",
        example="a > 5 AND b IS NOT NULL",
    ),
    _parameter(
        "body",
        {"type": "string", "enum": [each.value for each in BodyShape], "default": "auto"},
        "How bodies are shown: `auto` is text where it is UTF-8, else base64.",
    ),
    _parameter(
        "bodyMax",
        {"type": "integer", "minimum": 0, "maximum": BODY_MAX},
        "Bytes of each body, at most.",
    ),
    _parameter(
        "inflate",
        {"type": "boolean", "default": False},
        "Show compressed bodies inflated, up to maxInflatedSize.",
    ),
    _parameter(
        "group",
        {"type": "string", "pattern": "^[%|a-zA-Z0-9_-]+$", "maxLength": 120},
        "The consumer group that pulls: `consumer_group` of rocketmq_messages_out_total. It "
        "changes nothing in the answer.",
        example="billing",
    ),
)
