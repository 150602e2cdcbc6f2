"""What producers do all the time, past FastAPI: begin, commit, roll back."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

import msgspec
from fastapi import Request
from starlette.types import Message, Receive

from mqstore.coordinator import errors
from mqstore.coordinator.answers import problem_of, result_of
from mqstore.coordinator.begin_requests import BeginRequests
from mqstore.coordinator.decide import Decide
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
from mqstore.coordinator.views import state_of, view
from mqstore.service import bodies, problems
from mqstore.service.app import Api, documented, json_content
from mqstore.service.auth import Role
from mqstore.service.forwarded import Relayed
from mqstore.service.http import HotRequest, HotRoute, Reply, refuse_unknown
from mqstore.service.problems import Problem

_BASE: Final = "/v1/transactions"
_SPEC: Final = msgspec.json.Decoder(TransactionSpec)
_REASON: Final = msgspec.json.Decoder(Reason)
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
        for path, handler, operation in (
            (_BASE, self._begin, _BEGIN),
            (_BASE + "/{id}:commit", self._commit, _COMMIT),
            (_BASE + "/{id}:rollback", self._rollback, _ROLLBACK),
        ):
            api.add_hot(HotRoute("POST", path, Role.PRODUCE, handler, operation))

    async def _begin(self, request: HotRequest) -> Reply:
        if query := request.query():
            refuse_unknown(query, ())
        body = await request.body()
        if (relayed := await self._relayed(request, body)) is not None:
            return relayed
        spec = bodies.read(_SPEC, request, body)
        shard = self._service.shards.choose(spec.shard, spec.messages[0].uniq_key)
        if shard is None:
            raise Problem(problems.BODY_INVALID, f"there is no shard {spec.shard} here")
        topic = await shard.topics.writable(spec.topic)
        asked = self._begins.asked(spec, topic, _client_of(request))
        found = await result_of(shard.worker.begin, asked)
        begun = Begun(transaction_id=f"{shard.ordinal}-{found.key}", state=state_of(found))
        return _reply(begun, HTTPStatus.CREATED)

    async def _commit(self, request: HotRequest) -> Reply:
        return await self._decide(request, Verdict.COMMIT)

    async def _rollback(self, request: HotRequest) -> Reply:
        return await self._decide(request, Verdict.ROLLBACK)

    async def _decide(self, request: HotRequest, verdict: Verdict) -> Reply:
        if query := request.query():
            refuse_unknown(query, ())
        body = await request.body()
        if (relayed := await self._relayed(request, body)) is not None:
            return relayed
        why = bodies.read(_REASON, request, body).reason if body else ""
        transaction_id = request.params["id"]
        if len(transaction_id) > ID_LENGTH_MAX:
            raise Problem(problems.BAD_PARAMETER, f"id has more than {ID_LENGTH_MAX} characters")
        try:
            shard, key = self._service.shards.find(transaction_id)
        except errors.TransactionUnknown as error:
            raise problem_of(error) from None
        asked = Decide(key, verdict, why or _BY_PRODUCER)
        decided = await result_of(shard.worker.decide, asked)
        return _reply(view(shard.ordinal, decided.transaction), HTTPStatus.OK)

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


def _reply(found: Begun | TransactionView, status: int) -> Reply:
    return Reply(_encode(found), status)


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
    "the same `uniqKey`s, it is the same transaction: ask again when no answer came.",
    {"required": True, "content": json_content("TransactionSpec", SPEC_EXAMPLE)},
    documented(
        "Begun",
        BEGUN_EXAMPLE,
        problems.TRANSACTION_DECIDED,
        problems.TOPIC_UNKNOWN,
        problems.TOPIC_NOT_WRITABLE,
        problems.TOPIC_INVALID,
        problems.PROPERTY_INVALID,
        problems.MESSAGE_INVALID,
        *_KINDS,
        status=201,
        text="Begun.",
    ),
)


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
