"""The routes that producers use all the time, past FastAPI: begin, commit, roll back."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from mqstore.coordinator.relay import Relay
from mqstore.service import bodies, idempotency, problems
from mqstore.service.app import Api, documented, json_content
from mqstore.service.auth import Role
from mqstore.service.http import HotRequest, HotRoute, refuse_unknown
from mqstore.service.problems import Problem
from mqstore.service.reply import Reply
from mqstore.service.transaction_models import (
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

_BASE: Final = "/v1/transactions"
VALUES_MAX: Final = 25_000
"""JSON values of a begin: all that 100 messages with 100 keys and 100 properties each have."""


class HotRoutes:
    """Used on the event loop only."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay

    def add(self, api: Api) -> None:
        """Put the routes into the coordinator's interface."""
        api.add_schemas(TransactionSpec, NewMessage, Begun, Reason, TransactionView)
        route = partial(HotRoute, "POST", role=Role.PRODUCE)
        api.add_hot(route(_BASE, handler=self._begin, operation=_BEGIN))
        for name, operation in (("commit", _COMMIT), ("rollback", _ROLLBACK)):
            path = f"{_BASE}/{{id}}:{name}"
            api.add_hot(route(path, handler=self._decide, operation=operation))

    async def _begin(self, request: HotRequest) -> Reply:
        _check_query(request)
        key = idempotency.read(request)
        body = await request.body()
        bodies.check_values(body, VALUES_MAX)
        relaying = self._relay.begin(request.scope, body, key)
        return await asyncio.ensure_future(relaying)  # the HTTP client needs a task

    async def _decide(self, request: HotRequest) -> Reply:
        _check_query(request)
        transaction_id = request.params["id"]
        if len(transaction_id) > ID_LENGTH_MAX:
            raise Problem(problems.BAD_PARAMETER, f"id has more than {ID_LENGTH_MAX} characters")
        body = await request.body()
        relaying = self._relay.decide(transaction_id, request.scope, body)
        return await asyncio.ensure_future(relaying)


def _check_query(request: HotRequest) -> None:
    """Raises Problem."""
    if query := request.query():
        refuse_unknown(query, ())


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
