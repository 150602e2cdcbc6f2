"""What producers do all the time, past FastAPI: begin, commit, roll back."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from http import HTTPStatus
from typing import Any, Final

import msgspec
from fastapi import Request
from starlette.types import Message, Receive

from mqstore.client import Topic
from mqstore.coordinator import errors
from mqstore.coordinator.answers import later_of, problem_of
from mqstore.coordinator.begin_requests import BeginRequests
from mqstore.coordinator.decide import Decide, Decided
from mqstore.coordinator.halves import Verdict
from mqstore.coordinator.models import (
    BEGUN_EXAMPLE,
    ID_LENGTH_MAX,
    ID_PARAMETER,
    SPEC_EXAMPLE,
    Begun,
    NewMessage,
    Reason,
    TransactionSpec,
    TransactionView,
)
from mqstore.coordinator.service import CoordinatorService
from mqstore.coordinator.shards import Shard
from mqstore.coordinator.transactions import Transaction
from mqstore.coordinator.views import state_of, view
from mqstore.service import bodies, idempotency, problems, quick
from mqstore.service.app import Api, documented, json_content
from mqstore.service.auth import Role
from mqstore.service.forwarded import Relayed
from mqstore.service.http import HotRequest, HotRoute, refuse_unknown
from mqstore.service.problems import Problem
from mqstore.service.quick import Later, Prepared
from mqstore.service.reply import Reply

_BASE: Final = "/v1/transactions"
_SPEC: Final = msgspec.json.Decoder(TransactionSpec)
_REASON: Final = msgspec.json.Decoder(Reason)
VALUES_MAX: Final = 25_000
"""JSON values of a begin: all that 100 messages with 100 keys and 100 properties each have."""
_encode: Final = msgspec.json.Encoder().encode
_BY_PRODUCER: Final = "producer"
"""Why it was decided, where the producer says nothing."""


class HotRoutes:
    """Used on the event loop only."""

    def __init__(self, service: CoordinatorService) -> None:
        self._service = service
        self._begins = BeginRequests(service.keys)

    def add(self, api: Api) -> None:
        """Put the routes into the coordinator's interface."""
        api.add_schemas(TransactionSpec, NewMessage, Begun, Reason, TransactionView)
        route = partial(HotRoute, "POST", role=Role.PRODUCE, any_path=True)
        api.add_hot(
            route(_BASE, handler=self._begin, operation=_BEGIN, prepare=self._prepare_begin)
        )
        for name, verdict, operation in (
            ("commit", Verdict.COMMIT, _COMMIT),
            ("rollback", Verdict.ROLLBACK, _ROLLBACK),
        ):
            api.add_hot(
                route(
                    f"{_BASE}/{{id}}:{name}",
                    handler=partial(self._decide, verdict),
                    operation=operation,
                    prepare=partial(self._prepare_decision, verdict),
                )
            )

    async def _begin(self, request: HotRequest) -> Reply:
        _check_query(request)
        body = await request.body()
        if (relayed := await self._relayed(request, body)) is not None:
            return relayed
        bodies.check_values(body, VALUES_MAX)
        spec = bodies.read(_SPEC, request, body)
        _provide_keys(spec, idempotency.read(request))
        return await self._begun_on(self._shard_for(spec), spec, _client_of(request))

    async def _begun_on(self, shard: Shard, spec: TransactionSpec, client: str) -> Reply:
        """Raises Problem, TopicNameError, PropertyError."""
        is_fixed = spec.shard is not None or spec.messages[0].uniq_key is not None
        shard, topic = await self._service.shards.place(shard, spec.topic, is_fixed=is_fixed)
        return await _reply(self._begun(spec, shard, topic, client), HTTPStatus.CREATED)

    def _prepare_begin(self, request: HotRequest) -> Prepared:
        _check_query(request)
        key = idempotency.read(request)
        forwarder, client = self._service.forwarder, _client_of(request)
        is_json = bodies.says_json(request.media_type.decode("latin-1"))

        def begin(body: bytes, _: Mapping[str, str]) -> quick.Begun:
            if not is_json or not forwarder.leads:
                return None
            bodies.check_values(body, VALUES_MAX)
            spec = bodies.decode(_SPEC, body)
            _provide_keys(spec, key)
            shard = self._shard_for(spec)
            topic = shard.topics.known(spec.topic)
            if topic is None:  # the shard is chosen by now: another turn would be another one's
                return self._begun_on(shard, spec, client)
            return self._begun(spec, shard, topic, client)

        return Prepared(begin, HTTPStatus.CREATED)

    def _shard_for(self, spec: TransactionSpec) -> Shard:
        """Raises Problem."""
        shard = self._service.shards.choose(spec.shard, spec.messages[0].uniq_key)
        if shard is None:
            raise Problem(problems.BODY_INVALID, f"there is no shard {spec.shard} here")
        return shard

    def _begun(self, spec: TransactionSpec, shard: Shard, topic: Topic, client: str) -> Later:
        """Raises Problem, TopicNameError, PropertyError."""
        asked = self._begins.asked(spec, topic, client)

        def answer(told: asyncio.Future[Transaction]) -> bytes:
            found = told.result()
            return _encode(Begun(f"{shard.ordinal}-{found.key}", state_of(found)))

        return later_of(shard.worker.begin, asked, answer)

    async def _decide(self, verdict: Verdict, request: HotRequest) -> Reply:
        _check_query(request)
        body = await request.body()
        if (relayed := await self._relayed(request, body)) is not None:
            return relayed
        why = bodies.read(_REASON, request, body).reason if body else ""
        return await _reply(self._decided(request.params["id"], verdict, why), HTTPStatus.OK)

    def _prepare_decision(self, verdict: Verdict, request: HotRequest) -> Prepared:
        _check_query(request)
        forwarder = self._service.forwarder
        is_json = bodies.says_json(request.media_type.decode("latin-1"))

        def begin(body: bytes, params: Mapping[str, str]) -> Later | None:
            if not forwarder.leads or (body and not is_json):
                return None
            why = bodies.decode(_REASON, body).reason if body else ""
            return self._decided(params["id"], verdict, why)

        return Prepared(begin)

    def _decided(self, transaction_id: str, verdict: Verdict, why: str) -> Later:
        """Raises Problem."""
        if len(transaction_id) > ID_LENGTH_MAX:
            raise Problem(problems.BAD_PARAMETER, f"id has more than {ID_LENGTH_MAX} characters")
        try:
            shard, key = self._service.shards.find(transaction_id)
        except errors.TransactionUnknown as error:
            raise problem_of(error) from None

        def answer(told: asyncio.Future[Decided]) -> bytes:
            return _encode(view(shard.ordinal, told.result().transaction))

        return later_of(shard.worker.decide, Decide(key, verdict, why or _BY_PRODUCER), answer)

    async def _relayed(self, request: HotRequest, body: bytes) -> Reply | None:
        """The leader's answer, where this process does not lead. Raises Problem."""
        forwarder = self._service.forwarder
        if forwarder.leads:
            return None
        try:
            await forwarder.here_or_there(Request(request.scope, _replay(body)))
        except Relayed as relayed:
            found = relayed.response
            kept = found.headers.items()
            headers = tuple((k.encode(), v.encode("latin-1")) for k, v in kept if k in _PASSED)
            media_type = found.headers.get("content-type", "application/json").encode()
            return Reply(bytes(found.body), found.status_code, media_type, headers)
        return None


_PASSED: Final = frozenset({"retry-after", "www-authenticate"})


def _replay(body: bytes) -> Receive:
    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    return receive


async def _reply(later: Later, status: int) -> Reply:
    await asyncio.wait((later.told,))
    return Reply(later.answer(later.told), status)


def _check_query(request: HotRequest) -> None:
    """Raises Problem."""
    if query := request.query():
        refuse_unknown(query, ())


def _provide_keys(spec: TransactionSpec, idempotency_key: str | None) -> None:
    if idempotency_key is not None:
        idempotency.provide(idempotency_key, spec.messages)


def _client_of(request: HotRequest) -> str:
    host, port = request.client_address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _operation(
    name: str,
    summary: str,
    text: str,
    body: Mapping[str, Any],
    answers: Mapping[int | str, Mapping[str, Any]],
) -> dict[str, Any]:
    return {
        "operationId": name,
        "tags": ["transactions"],
        "summary": summary,
        "description": text,
        "requestBody": dict(body),
        "responses": {str(status): found for status, found in answers.items()},
    }


_KINDS: Final = (
    *problems.WITH_BODY,
    problems.HEADERS_TOO_LARGE,
    problems.INTERNAL,
    problems.OVERLOADED,
    problems.COORDINATOR_NOT_READY,
    problems.STORE_NOT_WRITABLE,
    *problems.GUARDED,
)
_BEGIN: Final = _operation(
    "begin",
    "Begin a transaction",
    "Stores a half message for each message; nobody sees them before the commit. Begun again under "
    "the same `uniqKey`s, it is the same transaction: retry when no answer came. By another group, "
    "or with another body, topic or number of messages, it is 409 `unique-key-taken`.",
    {"required": True, "content": json_content("TransactionSpec", SPEC_EXAMPLE)},
    documented(
        "Begun",
        BEGUN_EXAMPLE,
        problems.TRANSACTION_DECIDED,
        problems.UNIQUE_KEY_TAKEN,
        problems.TOPIC_UNKNOWN,
        problems.TOPIC_NOT_WRITABLE,
        problems.TOPIC_INVALID,
        problems.PROPERTY_INVALID,
        problems.MESSAGE_INVALID,
        *_KINDS,
        status=201,
        text="Begun.",
    ),
) | {
    "parameters": [
        idempotency.parameter(
            "Begun again under it, it is the same transaction; with another body or number of "
            "messages it is 409 `unique-key-taken`."
        ),
    ]
}


def _decision(name: str, summary: str, text: str) -> dict[str, Any]:
    answers = documented(
        "TransactionView",
        None,
        problems.TRANSACTION_UNKNOWN,
        problems.TRANSACTION_DECIDED,
        problems.TRANSACTION_GONE,
        *_KINDS,
        text="Decided, now or before.",
    )
    body = {"required": False, "content": json_content("Reason")}
    return _operation(name, summary, text, body, answers) | {"parameters": [ID_PARAMETER]}


_COMMIT: Final = _decision(
    "commit",
    "Commit a transaction",
    "The messages become visible, all of them, and can be read when this is answered. Repeating it "
    "is fine.",
)
_ROLLBACK: Final = _decision(
    "rollback",
    "Roll a transaction back",
    "The messages are never seen. Repeating it is fine.",
)
