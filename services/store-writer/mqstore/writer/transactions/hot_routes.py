"""What producers do all the time, past FastAPI: begin, commit, roll back."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import lru_cache, partial
from http import HTTPStatus
from typing import Any, Final
from zlib import crc32

import msgspec

from mqstore.service import bodies, idempotency, problems, quick
from mqstore.service.app import Api, documented, json_content
from mqstore.service.auth import Role
from mqstore.service.forwarded import Asking, was_forwarded
from mqstore.service.http import HotRequest, HotRoute, refuse_unknown
from mqstore.service.membership import ShardEntry
from mqstore.service.problems import Problem
from mqstore.service.quick import Later, Prepared
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
from mqstore.storage.codec import topic_names
from mqstore.storage.codec.message_id import UniqueKeys
from mqstore.storage.tables.config_tables import TopicConfig
from mqstore.storage.transactions import Decide, Verdict
from mqstore.writer.service import WriterService
from mqstore.writer.transactions.ids import shard_and_key
from mqstore.writer.transactions.requests import BeginRequests
from mqstore.writer.transactions.views import STATES, view

_BASE: Final = "/v1/transactions"
_SPEC: Final = msgspec.json.Decoder(TransactionSpec)
_REASON: Final = msgspec.json.Decoder(Reason)
VALUES_MAX: Final = 25_000
"""JSON values of a begin: all that 100 messages with 100 keys and 100 properties each have."""
TOPICS_KEPT: Final = 1_024
"""Names that are known to be names of topics."""
_encode: Final = msgspec.json.Encoder().encode
_BY_PRODUCER: Final = "producer"
"""Why a transaction was decided, where the producer gives no reason."""


class HotRoutes:
    """Used on the event loop only."""

    def __init__(self, service: WriterService) -> None:
        self._service = service
        self._requests = BeginRequests(UniqueKeys(service.seams))

    def add(self, api: Api) -> None:
        """Put the routes into store-writer's interface."""
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

    # begin ----------------------------------------------------------------------------------

    async def _begin(self, request: HotRequest) -> Reply:
        _check_query(request)
        key = idempotency.read(request)
        body = await request.body()
        bodies.check_values(body, VALUES_MAX)
        spec = bodies.read(_SPEC, request, body)
        _provide_keys(spec, key)
        other = self._shard_for(spec, is_forwarded=was_forwarded(request.scope))
        if other is not None:
            return await self._relayed(other, request, body)
        return await _reply(self._begun(spec, _client_of(request)), HTTPStatus.CREATED)

    def _prepare_begin(self, request: HotRequest) -> Prepared:
        _check_query(request)
        key = idempotency.read(request)
        client, is_forwarded = _client_of(request), was_forwarded(request.scope)
        is_json = _says_json(request)

        def begin(body: bytes, _: Mapping[str, str]) -> quick.Begun:
            if not is_json:
                return None
            bodies.check_values(body, VALUES_MAX)
            spec = bodies.decode(_SPEC, body)
            _provide_keys(spec, key)
            if self._shard_for(spec, is_forwarded=is_forwarded) is not None:
                return None
            return self._begun(spec, client)

        return Prepared(begin, HTTPStatus.CREATED)

    def _shard_for(self, spec: TransactionSpec, *, is_forwarded: bool) -> ShardEntry | None:
        """The other shard on which a transaction has to begin; None: it begins here.

        Under a key that may be sent again a transaction always begins on the same shard. Raises
        Problem.
        """
        shards, shard = self._service.shards, spec.shard
        if shard is None:
            uniq_key = spec.messages[0].uniq_key
            if uniq_key is None or is_forwarded or shards.members.alone:
                return None
            numbers = list(shards.members.entries)
            shard = numbers[crc32(uniq_key.encode()) % len(numbers)]
        if shard == shards.own:
            return None
        entry = shards.members.entries.get(shard)
        if entry is None:
            raise Problem(problems.BODY_INVALID, f"there is no shard {shard} here")
        if is_forwarded:
            raise shards.misdirected(entry)
        return entry

    def _begun(self, spec: TransactionSpec, client: str) -> Later:
        """Raises Problem, StorageError."""
        service = self._service
        service.require_transactions()
        topic = service.topics.get(spec.topic) or self._look_up(spec.topic)
        command = self._requests.read(spec, topic, client)

        def answer(result: asyncio.Future[Any]) -> bytes:
            found = result.result()
            return _encode(Begun(f"{service.settings.shard}-{found.key}", STATES[found.state]))

        return Later(service.transactions.turns.begin(command), answer)

    def _look_up(self, name: str) -> TopicConfig:
        """A topic that takes messages. Raises TopicNameError, TopicUnknown, Problem."""
        store = self._service.store
        _check_send_topic(name, store.format)
        topic = store.topic(name)
        if not topic.is_writable or topic.write_queues < 1:
            raise Problem(problems.TOPIC_NOT_WRITABLE, f"topic {name} takes no messages")
        self._service.topics[name] = topic
        return topic

    # commit and roll back -------------------------------------------------------------------

    async def _decide(self, verdict: Verdict, request: HotRequest) -> Reply:
        _check_query(request)
        body = await request.body()
        why = bodies.read(_REASON, request, body).reason if body else ""
        other, key = self._find(request.params["id"], is_forwarded=was_forwarded(request.scope))
        if other is not None:
            return await self._relayed(other, request, body)
        return await _reply(self._decided(key, verdict, why), HTTPStatus.OK)

    def _prepare_decision(self, verdict: Verdict, request: HotRequest) -> Prepared:
        _check_query(request)
        is_json, is_forwarded = _says_json(request), was_forwarded(request.scope)

        def begin(body: bytes, params: Mapping[str, str]) -> Later | None:
            if body and not is_json:
                return None
            why = bodies.decode(_REASON, body).reason if body else ""
            other, key = self._find(params["id"], is_forwarded=is_forwarded)
            return None if other is not None else self._decided(key, verdict, why)

        return Prepared(begin)

    def _find(self, transaction_id: str, *, is_forwarded: bool) -> tuple[ShardEntry | None, str]:
        """The other shard that has a transaction (None: this one), and its key. Raises Problem."""
        if len(transaction_id) > ID_LENGTH_MAX:
            raise Problem(problems.BAD_PARAMETER, f"id has more than {ID_LENGTH_MAX} characters")
        return shard_and_key(self._service.shards, transaction_id, is_forwarded=is_forwarded)

    def _decided(self, key: str, verdict: Verdict, why: str) -> Later:
        """Raises Problem, StorageError."""
        service = self._service
        service.require_transactions()

        def answer(result: asyncio.Future[Any]) -> bytes:
            return _encode(view(service.settings.shard, result.result().story))

        command = Decide(key, verdict, why or _BY_PRODUCER)
        return Later(service.transactions.turns.decide(command), answer)

    async def _relayed(self, other: ShardEntry, request: HotRequest, body: bytes) -> Reply:
        """Another shard's answer. Raises Problem."""
        shards = self._service.shards
        relaying = shards.reply(other, Asking.of(request.scope, str(shards.own), body))
        return await asyncio.ensure_future(relaying)  # the HTTP client needs a task


_check_send_topic: Final = lru_cache(maxsize=TOPICS_KEPT)(topic_names.check_send_topic)
"""Refusals are not kept."""


async def _reply(later: Later, status: int) -> Reply:
    await asyncio.wait((later.told,))
    return Reply(later.answer(later.told), status)


def _says_json(request: HotRequest) -> bool:
    return bodies.says_json(request.media_type.decode("latin-1"))


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
    *problems.READ_ONLY_KINDS,
    problems.STORE_FAILED,
    problems.FLUSH_TIMEOUT,
    problems.SHARD_UNREACHABLE,
    problems.WRONG_SHARD,
    *problems.GUARDED,
)
_BEGIN: Final = _operation(
    "begin_transaction",
    "Begin a transaction",
    "Stores a half message for each message; no consumer receives them before the commit. Begun "
    "again under the same `uniqKey`s, it is the same transaction: retry when no answer came. By "
    "another group, or with another body, topic or number of messages, it is 409 "
    "`unique-key-taken`.",
    {"required": True, "content": json_content("TransactionSpec", SPEC_EXAMPLE)},
    documented(
        "Begun",
        BEGUN_EXAMPLE,
        problems.TRANSACTION_DECIDED,
        problems.UNIQUE_KEY_TAKEN,
        problems.TOPIC_UNKNOWN,
        problems.TOPIC_NOT_WRITABLE,
        problems.TOPIC_INVALID,
        problems.GROUP_INVALID,
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
    "commit_transaction",
    "Commit a transaction",
    "The messages become visible, all of them, and can be read when this is answered. Repeating it "
    "is fine.",
)
_ROLLBACK: Final = _decision(
    "rollback_transaction",
    "Roll a transaction back",
    "No consumer ever receives the messages. Repeating it is fine.",
)
