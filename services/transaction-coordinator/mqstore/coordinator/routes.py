"""The transaction coordinator's routes."""

from __future__ import annotations

import asyncio
import binascii
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any, Final, TypeVar

from fastapi import Body, Depends, Query, Request
from fastapi import Path as PathParameter
from fastapi.responses import Response

from mqstore.client import ClientError, ProblemError
from mqstore.coordinator import errors
from mqstore.coordinator.begin import Begin
from mqstore.coordinator.coordinator import Coordinator
from mqstore.coordinator.decide import Decide
from mqstore.coordinator.forwarding import Relayed
from mqstore.coordinator.halves import Verdict
from mqstore.coordinator.models import (
    Begun,
    CheckTaking,
    LeaderView,
    NewMessage,
    Reason,
    Resolution,
    ShardView,
    State,
    Taken,
    TransactionList,
    TransactionSpec,
    TransactionView,
)
from mqstore.coordinator.records import NewRecord
from mqstore.coordinator.service import CoordinatorService
from mqstore.coordinator.shards import Shard
from mqstore.coordinator.transactions import Transaction
from mqstore.coordinator.views import Listing, cursor_of, state_of, view
from mqstore.coordinator.worker import Busy
from mqstore.service import problems
from mqstore.service.app import Api
from mqstore.service.auth import Role
from mqstore.service.problems import Problem, responses
from mqstore.storage.codec import topic_names
from mqstore.storage.layout import (
    KEY_SEPARATOR,
    PROPERTY_CHECK_IMMUNITY,
    PROPERTY_KEYS,
    PROPERTY_TAGS,
    PROPERTY_UNIQ_KEY,
    StoreFormat,
)

LIST_MAX: Final = 1_000
CHECK_POLL_S: Final = 0.25
_BASE: Final = "/v1/transactions"
T = TypeVar("T")
TransactionId = Annotated[
    str,
    PathParameter(
        alias="id",
        max_length=300,
        description="As begin answered it; also `SHARD-` and the UNIQ_KEY of a broker's producer.",
        openapi_examples={"one": {"value": "0-AC1100021F9018B4AAC2A1B2C3D40000"}},
    ),
]


class Routes:
    """Producers begin and decide, administrators look and resolve."""

    def __init__(self, service: CoordinatorService) -> None:
        self._service = service
        self._turn = 0

    def add(self, api: Api) -> None:
        """Put all routes of the coordinator into its interface."""
        unknown = (problems.TRANSACTION_UNKNOWN,)
        decided = (*unknown, problems.TRANSACTION_DECIDED, problems.TRANSACTION_GONE)
        one = _BASE + "/{id}"
        begun = (
            problems.TRANSACTION_DECIDED,
            problems.TOPIC_UNKNOWN,
            problems.TOPIC_NOT_WRITABLE,
            problems.TOPIC_INVALID,
            problems.PROPERTY_INVALID,
            problems.MESSAGE_INVALID,
        )
        produce, admin = Role.PRODUCE, Role.ADMIN
        forwarder = self._service.forwarder
        api.app.add_exception_handler(Relayed, _relayed)
        for method, path, endpoint, summary, role, kinds in (
            ("POST", _BASE, self.begin, "Begin a transaction", produce, begun),
            ("POST", one + ":commit", self.commit, "Commit a transaction", produce, decided),
            ("POST", one + ":rollback", self.rollback, "Roll a transaction back", produce, decided),
            ("POST", one + ":resolve", self.resolve, "Resolve one by hand", admin, decided),
            ("GET", _BASE, self.transactions, "Transactions, oldest first", Role.CONSUME, ()),
            ("GET", one, self.transaction, "One transaction's story", Role.CONSUME, unknown),
            ("POST", "/v1/checks", self.checks, "Take checks of a group", produce, ()),
            ("GET", "/v1/leader", self.leader, "Who leads", Role.CONSUME, ()),
        ):
            with_body = problems.WITH_BODY if method == "POST" else ()
            elsewhere = [] if endpoint == self.leader else [Depends(forwarder.here_or_there)]
            api.app.add_api_route(
                path,
                endpoint,
                methods=[method],
                summary=summary,
                status_code=HTTPStatus.CREATED if endpoint == self.begin else HTTPStatus.OK,
                responses=responses(
                    *kinds,
                    *with_body,
                    problems.OVERLOADED,
                    problems.COORDINATOR_NOT_READY,
                    problems.STORE_NOT_WRITABLE,
                    *problems.GUARDED,
                ),
                tags=["checks" if path == "/v1/checks" else "transactions"],
                dependencies=[api.requires(role), *elsewhere],
                name=endpoint.__name__,
            )

    async def begin(self, spec: TransactionSpec, request: Request, response: Response) -> Begun:
        """Stores a half message for each message; nobody sees them before the commit. Begun again
        under the same `uniqKey`s, it is the same transaction: ask again when no answer came."""
        shard = self._service.shards.choose(spec.shard, spec.messages[0].uniq_key)
        if shard is None:
            raise Problem(problems.BODY_INVALID, f"there is no shard {spec.shard} here")
        asked = await self._asked(shard, spec, _client_of(request))
        found: Transaction = await _answer(shard.worker.begin, asked)
        return Begun(transaction_id=f"{shard.ordinal}-{found.key}", state=state_of(found))

    async def commit(
        self, id_: TransactionId, why: Annotated[Reason | None, Body()] = None
    ) -> TransactionView:
        """The messages become visible, all of them, and can be read when this is answered.
        Repeating it is fine."""
        return await self._decide(id_, Verdict.COMMIT, _reason(why))

    async def rollback(
        self, id_: TransactionId, why: Annotated[Reason | None, Body()] = None
    ) -> TransactionView:
        """The messages are never seen. Repeating it is fine."""
        return await self._decide(id_, Verdict.ROLLBACK, _reason(why))

    async def resolve(self, id_: TransactionId, resolution: Resolution) -> TransactionView:
        """A person's decision, with its reason, which is kept; also of one that was set aside."""
        verdict = Verdict(resolution.decision)
        return await self._decide(id_, verdict, resolution.reason, by_hand=True)

    async def transaction(self, id_: TransactionId) -> TransactionView:
        shard, key = self._find(id_)
        return await _answer(shard.worker.ask, lambda c: view(shard.ordinal, c.find(key)))

    async def transactions(
        self,
        state: Annotated[State | None, Query(description="Default: pending and set-aside.")] = None,
        group: Annotated[str | None, Query(max_length=255, description="Producer group.")] = None,
        older_than: Annotated[
            int, Query(alias="olderThan", ge=0, le=2**31, description="Seconds since it was begun.")
        ] = 0,
        limit: Annotated[int, Query(ge=1, le=LIST_MAX)] = 100,
        cursor: Annotated[str, Query(max_length=600)] = "",
    ) -> TransactionList:
        """Over all shards. Decided ones as far as remembered: the newest 50,000 of each."""
        asked = Listing(state, group, older_than * 1000, cursor, limit + 1)
        every = list(self._service.shards)
        answers = await asyncio.gather(
            *(_answer(each.worker.ask, partial(asked.of, each.ordinal)) for each in every),
            return_exceptions=True,
        )
        found: list[TransactionView] = []
        missing: list[int] = []
        for shard, answer in zip(every, answers, strict=True):
            if not isinstance(answer, BaseException):
                found += answer
            elif isinstance(answer, Problem) and len(missing) + 1 < len(every):
                missing.append(shard.ordinal)
            else:
                raise answer
        found = sorted(found, key=cursor_of)[: limit + 1]
        shown = found[:limit]
        return TransactionList(
            transactions=shown,
            next=cursor_of(shown[-1]) if len(found) > limit else None,
            complete=not missing,
            missing=missing,
        )

    async def checks(self, asked: CheckTaking) -> Taken:
        """Transactions of a group whose producer went silent. Decide each, or leave it, which means
        unknown: it comes again later. A check counts when it is answered here."""
        loop = asyncio.get_running_loop()
        until = loop.time() + asked.wait
        found = await self._taken(asked)
        while not found and loop.time() < until and not self._service.interrupted.is_set():
            await asyncio.sleep(CHECK_POLL_S)
            found = await self._taken(asked)
        return Taken(transactions=found)

    async def leader(self) -> LeaderView:
        """Answered by the coordinator that is asked; all else a standby passes on to the leader."""
        service = self._service
        shards = [
            ShardView(
                shard=shard.ordinal,
                ready=shard.worker.trouble is None,
                detail=shard.worker.trouble,
                pending=len(shard.pending),
            )
            for shard in service.shards
        ]
        leads = service.forwarder.leads
        url = service.leadership.leader_url()
        return LeaderView(url=url, leading=leads, shards=shards if leads else [])

    async def _taken(self, asked: CheckTaking) -> list[TransactionView]:
        """Checks of those shards that can be asked. Raises Problem when none can."""
        found: list[TransactionView] = []
        able = [shard for shard in self._service.shards if shard.worker.trouble is None]
        for shard in able or list(self._service.shards)[:1]:
            left = asked.max - len(found)
            if left:
                take = partial(_take, shard.ordinal, asked.producer_group, left)
                found += await _answer(shard.worker.ask, take)
        return found

    async def _decide(
        self, transaction_id: str, verdict: Verdict, why: str, *, by_hand: bool = False
    ) -> TransactionView:
        shard, key = self._find(transaction_id)
        decided = await _answer(shard.worker.decide, Decide(key, verdict, why, by_hand))
        return view(shard.ordinal, decided.transaction)

    def _find(self, transaction_id: str) -> tuple[Shard, str]:
        """Raises Problem."""
        try:
            return self._service.shards.find(transaction_id)
        except errors.TransactionUnknown as error:
            raise problem_of(error) from None

    async def _asked(self, shard: Shard, spec: TransactionSpec, born_host: str) -> Begin:
        """Raises Problem, TopicNameError, PropertyError."""
        topic_names.check_group(spec.producer_group)
        topic = await _topic(shard, spec.topic)
        self._turn += 1
        now_ms = time.time_ns() // 1_000_000
        messages = []
        for each in spec.messages:
            table = self._properties(each, spec.check_immunity_seconds)
            queue = self._turn % topic.write_queues if each.queue_id is None else each.queue_id
            if queue >= topic.write_queues:
                raise Problem(problems.MESSAGE_INVALID, f"topic {spec.topic} has no queue {queue}")
            messages.append(
                NewRecord(spec.topic, queue, _body(each), table, born_host, now_ms, each.flag)
            )
        given = [each.uniq_key for each in spec.messages if each.uniq_key is not None]
        if len(set(given)) < len(given):
            raise Problem(
                problems.BODY_INVALID, "two messages have one uniqKey; each needs its own"
            )
        return Begin(
            spec.producer_group, messages, may_repeat=spec.messages[0].uniq_key is not None
        )

    def _properties(self, message: NewMessage, immunity_s: int | None) -> dict[str, str]:
        table = dict(message.properties)
        for name, value in table.items():
            topic_names.check_user_property(name, value, StoreFormat.V5_X)
        if message.keys:
            for key in message.keys:
                topic_names.check_key(key)
            table[PROPERTY_KEYS] = KEY_SEPARATOR.join(message.keys)
        if message.uniq_key is not None:
            topic_names.check_key(message.uniq_key)
        table[PROPERTY_UNIQ_KEY] = message.uniq_key or self._service.keys.next()
        if message.tags:
            table[PROPERTY_TAGS] = message.tags
        if immunity_s is not None:
            table[PROPERTY_CHECK_IMMUNITY] = str(immunity_s)
        return table


async def _answer(ask: Callable[[Any], Future[T]], asked: Any) -> T:
    """Ask a worker, and wait. Raises Problem."""
    try:
        return await asyncio.wrap_future(ask(asked))
    except errors.CoordinatorError as error:
        raise problem_of(error) from error


def _take(shard: int, group: str, count: int, coordinator: Coordinator) -> list[TransactionView]:
    """Checks that count as sent: whoever asked for them gets them now."""
    keys = [each.key for each in coordinator.due([group])][:count]
    coordinator.sending(keys)
    return [view(shard, coordinator.find(key)) for key in coordinator.sent(keys, "poll")]


async def _relayed(_: Request, answer: Any) -> Response:
    response: Response = answer.response
    return response


def _reason(why: Reason | None) -> str:
    return (why.reason if why is not None else "") or "producer"


async def _topic(shard: Shard, name: str) -> Any:
    """Raises Problem."""
    topic_names.check_send_topic(name, StoreFormat.V5_X)
    try:
        topic = await asyncio.to_thread(shard.client.topic, name)
    except ProblemError as error:
        if error.type == "topic-unknown":
            raise Problem(problems.TOPIC_UNKNOWN, error.detail) from error
        raise Problem(problems.COORDINATOR_NOT_READY, str(error)) from error
    except ClientError as error:
        raise Problem(problems.COORDINATOR_NOT_READY, str(error)) from error
    if not topic.perm & 2 or topic.write_queues < 1:
        raise Problem(problems.TOPIC_NOT_WRITABLE, f"topic {name} takes no messages")
    return topic


def _client_of(request: Request) -> str:
    host, port = request.client or ("127.0.0.1", 0)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _body(message: NewMessage) -> bytes:
    if message.body_base64 is None:
        return (message.body or "").encode()
    if message.body is not None:
        raise Problem(problems.BODY_INVALID, "give body or bodyBase64, not both")
    try:
        return binascii.a2b_base64(message.body_base64, strict_mode=True)
    except (binascii.Error, ValueError) as error:
        raise Problem(problems.BODY_INVALID, f"bodyBase64 is no base64: {error}") from None


def problem_of(error: errors.CoordinatorError) -> Problem:
    """What a producer is told."""
    if isinstance(error, errors.Contradicted):
        extra = {"decision": error.decision, "decidedAt": error.decided_at_ms, "why": error.why}
        return Problem(problems.TRANSACTION_DECIDED, str(error), extra=extra)
    kinds = {
        errors.TransactionUnknown: problems.TRANSACTION_UNKNOWN,
        errors.TransactionGone: problems.TRANSACTION_GONE,
        errors.LogRefused: problems.STORE_NOT_WRITABLE,
        Busy: problems.OVERLOADED,
    }
    return Problem(kinds.get(type(error), problems.COORDINATOR_NOT_READY), str(error))
