"""The transaction coordinator's routes."""

from __future__ import annotations

import asyncio
import binascii
import time
from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Any, Final, TypeVar

from fastapi import Body, Query, Request
from fastapi import Path as PathParameter
from fastapi.responses import Response

from mqstore.client import ClientError, ProblemError
from mqstore.coordinator import errors
from mqstore.coordinator.begin import Begin
from mqstore.coordinator.coordinator import Coordinator
from mqstore.coordinator.decide import Decide
from mqstore.coordinator.halves import Verdict
from mqstore.coordinator.models import (
    Begun,
    CheckTaking,
    HalfCopy,
    NewMessage,
    Reason,
    Resolution,
    State,
    TransactionList,
    TransactionSpec,
    TransactionView,
)
from mqstore.coordinator.records import NewRecord
from mqstore.coordinator.service import CoordinatorService
from mqstore.coordinator.transactions import Transaction
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
_STATES: Final = {
    None: State.PENDING,
    Verdict.COMMIT: State.COMMITTED,
    Verdict.ROLLBACK: State.ROLLED_BACK,
    Verdict.SET_ASIDE: State.SET_ASIDE,
}
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


@dataclass(frozen=True, slots=True)
class _Listing:
    state: State | None
    group: str | None
    older_than_ms: int
    after: str
    limit: int


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
        for method, path, endpoint, summary, role, kinds in (
            ("POST", _BASE, self.begin, "Begin a transaction", produce, begun),
            ("POST", one + ":commit", self.commit, "Commit a transaction", produce, decided),
            ("POST", one + ":rollback", self.rollback, "Roll a transaction back", produce, decided),
            ("POST", one + ":resolve", self.resolve, "Resolve one by hand", admin, decided),
            ("GET", _BASE, self.transactions, "Transactions, oldest first", Role.CONSUME, ()),
            ("GET", one, self.transaction, "One transaction's story", Role.CONSUME, unknown),
            ("POST", "/v1/checks", self.checks, "Take checks of a group", produce, ()),
        ):
            with_body = problems.WITH_BODY if method == "POST" else ()
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
                dependencies=[api.requires(role)],
                name=endpoint.__name__,
            )

    async def begin(self, spec: TransactionSpec, request: Request, response: Response) -> Begun:
        """Stores a half message for each message; nobody sees them before the commit. Begun again
        under the same `uniqKey`s, it is the same transaction: ask again when no answer came."""
        asked = await self._asked(spec, _client_of(request))
        found = await self._answer(self._service.worker.begin, asked)
        return Begun(transaction_id=self._id(found), state=_state(found))

    async def commit(
        self, id_: TransactionId, why: Annotated[Reason | None, Body()] = None
    ) -> TransactionView:
        """The messages become visible, all of them, and can be read when this is answered.
        Repeating it is fine."""
        return await self._decide(id_, Verdict.COMMIT, why)

    async def rollback(
        self, id_: TransactionId, why: Annotated[Reason | None, Body()] = None
    ) -> TransactionView:
        """The messages are never seen. Repeating it is fine."""
        return await self._decide(id_, Verdict.ROLLBACK, why)

    async def resolve(self, id_: TransactionId, resolution: Resolution) -> TransactionView:
        """A person's decision, with its reason, which is kept; also of one that was set aside."""
        verdict = Verdict(resolution.decision)
        asked = Decide(self._key(id_), verdict, resolution.reason, by_hand=True)
        decided = await self._answer(self._service.worker.decide, asked)
        return self._view(decided.transaction)

    async def transaction(self, id_: TransactionId) -> TransactionView:
        key = self._key(id_)
        return self._view(await self._answer(self._service.worker.ask, lambda c: c.find(key)))

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
        """Decided ones as far as they are remembered: the newest 50,000."""
        asked = _Listing(state, group, older_than * 1000, cursor, limit + 1)
        found = await self._answer(self._service.worker.ask, lambda c: list(_listed(c, asked)))
        views = [self._view(each) for each in found[:limit]]
        return TransactionList(
            transactions=views, next=_cursor(found[limit - 1]) if len(found) > limit else None
        )

    async def checks(self, asked: CheckTaking) -> TransactionList:
        """Transactions of a group whose producer went silent. Decide each, or leave it, which means
        unknown: it comes again later. A check counts when it is answered here."""
        service = self._service

        def take(coordinator: Coordinator) -> list[Transaction]:
            keys = [each.key for each in coordinator.due([asked.producer_group])][: asked.max]
            coordinator.sending(keys)
            return [coordinator.find(key) for key in coordinator.sent(keys)]

        loop = asyncio.get_running_loop()
        until = loop.time() + asked.wait
        found = await self._answer(service.worker.ask, take)
        while not found and loop.time() < until and not service.interrupted.is_set():
            await asyncio.sleep(CHECK_POLL_S)
            found = await self._answer(service.worker.ask, take)
        return TransactionList(transactions=[self._view(each) for each in found], next=None)

    async def _decide(
        self, transaction_id: str, verdict: Verdict, why: Reason | None
    ) -> TransactionView:
        reason = (why.reason if why is not None else "") or "producer"
        asked = Decide(self._key(transaction_id), verdict, reason)
        decided = await self._answer(self._service.worker.decide, asked)
        return self._view(decided.transaction)

    async def _answer(self, ask: Any, asked: Any) -> Any:
        """Ask the worker. Raises Problem."""
        try:
            return await self._service.result(ask(asked))
        except errors.CoordinatorError as error:
            raise _problem(error) from error

    async def _asked(self, spec: TransactionSpec, born_host: str) -> Begin:
        """Raises Problem, TopicNameError, PropertyError."""
        topic_names.check_group(spec.producer_group)
        topic = await self._topic(spec.topic)
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

    async def _topic(self, name: str) -> Any:
        topic_names.check_send_topic(name, StoreFormat.V5_X)
        try:
            topic = await asyncio.to_thread(self._service.client.topic, name)
        except ProblemError as error:
            if error.type == "topic-unknown":
                raise Problem(problems.TOPIC_UNKNOWN, error.detail) from error
            raise Problem(problems.COORDINATOR_NOT_READY, str(error)) from error
        except ClientError as error:
            raise Problem(problems.COORDINATOR_NOT_READY, str(error)) from error
        if not topic.perm & 2 or topic.write_queues < 1:
            raise Problem(problems.TOPIC_NOT_WRITABLE, f"topic {name} takes no messages")
        return topic

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

    def _id(self, transaction: Transaction) -> str:
        return f"{self._service.settings.shard}-{transaction.key}"

    def _key(self, transaction_id: str) -> str:
        """Raises Problem (404) for another shard's."""
        shard, _, key = transaction_id.partition("-")
        if shard != str(self._service.settings.shard) or not key:
            raise Problem(
                problems.TRANSACTION_UNKNOWN,
                f"{transaction_id!r} is no transaction of shard {self._service.settings.shard}",
            )
        return key

    def _view(self, found: Transaction) -> TransactionView:
        decision = found.decision
        return TransactionView(
            transaction_id=self._id(found),
            state=_state(found),
            producer_group=found.group,
            messages=len(found.parts),
            born_timestamp=found.born_ms,
            checks_sent=found.check_times,
            decided_at=None if decision is None else decision.at_ms,
            why="" if decision is None else decision.why,
            halves=[
                HalfCopy(
                    uniq_key=copy.uniq_key,
                    topic=copy.topic,
                    queue_id=copy.queue_id,
                    queue_offset=copy.queue_offset,
                    physical_offset=copy.physical_offset,
                    store_timestamp=copy.store_timestamp_ms,
                    check_times=copy.check_times,
                    op_offset=found.resolved.get(copy.queue_offset),
                )
                for copy in found.copies
            ],
        )


def _state(found: Transaction) -> State:
    return _STATES[None if found.decision is None else found.decision.verdict]


def _listed(coordinator: Coordinator, asked: _Listing) -> Iterator[Transaction]:
    """In the order of their first half messages, behind the cursor."""
    state = coordinator.state
    wanted = {State.PENDING, State.SET_ASIDE} if asked.state is None else {asked.state}
    every = [*state.pending.values(), *state.set_aside.values(), *state.history.values()]
    before_ms = time.time_ns() // 1_000_000 - asked.older_than_ms
    fitting = [
        each
        for each in every
        if _state(each) in wanted
        and asked.group in (None, each.group)
        and each.born_ms <= before_ms
        and _cursor(each) > asked.after
    ]
    fitting.sort(key=_cursor)
    yield from fitting[: asked.limit]


def _cursor(found: Transaction) -> str:
    return f"{found.first.queue_offset:020d}.{found.key}"


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


def _problem(error: errors.CoordinatorError) -> Problem:
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
