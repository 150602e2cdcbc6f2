"""The frequent requests of producers, served outside FastAPI: begin, commit, roll back."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import lru_cache, partial
from http import HTTPStatus
from typing import Any, Final

import msgspec

from mqstore.service import bodies, http, idempotency, problems
from mqstore.service.app import Api
from mqstore.service.endpoint import Endpoint, Hot
from mqstore.service.forwarding import ForwardedRequest, read_client, was_forwarded
from mqstore.service.http import FutureReply, HotRequest, Prepared, Reply
from mqstore.service.membership import ShardEntry
from mqstore.service.problems import Problem
from mqstore.service.sockets import format_address
from mqstore.service.transaction_parameters import (
    VALUES_MAX,
    body_of_begin,
    check_query,
    check_transaction_id,
)
from mqstore.service.transaction_structs import BegunTransaction, Reason, TransactionSpec
from mqstore.storage import topic_names
from mqstore.storage.admin import TopicConfig
from mqstore.storage.puts import QueueTurns, UniqueKeys
from mqstore.storage.transactions import Decide, Verdict
from mqstore.wire import transactions as operations
from mqstore.writer import produce
from mqstore.writer.key_routing import Parts
from mqstore.writer.service import WriterService
from mqstore.writer.transactions.ids import shard_and_key
from mqstore.writer.transactions.plain import PlainTransactions
from mqstore.writer.transactions.requests import BeginRequests
from mqstore.writer.transactions.views import STATES, view

_SPEC: Final = msgspec.json.Decoder(TransactionSpec)
_REASON: Final = msgspec.json.Decoder(Reason)
TOPICS_KEPT: Final = 1_024
"""Names that are known to be names of topics."""
_encode: Final = msgspec.json.Encoder().encode
_BY_PRODUCER: Final = "producer"
_JSON_FIELDS: Final = b"content-type: application/json\r\ncontent-length: %d\r\n"
"""Why a transaction was decided, where the producer gives no reason."""


class HotRoutes:
    """Used on the event loop only."""

    def __init__(self, service: WriterService) -> None:
        self._service = service
        keys, turns = UniqueKeys(service.seams), QueueTurns()
        self._requests = BeginRequests(keys, turns)
        self._plain = PlainTransactions(service, keys, turns)

    def add(self, api: Api) -> None:
        """Put the routes into store-writer's interface."""
        begin = Hot(prepare=self._prepare_begin, any_path=True)
        Endpoint(operations.BEGIN, self._begin, begin).add(api)
        for operation, verdict in (
            (operations.COMMIT, Verdict.COMMIT),
            (operations.ROLLBACK, Verdict.ROLLBACK),
        ):
            hot = Hot(prepare=partial(self._prepare_decision, verdict), any_path=True)
            Endpoint(operation, partial(self._decide, verdict), hot).add(api)

    # begin ----------------------------------------------------------------------------------

    async def _begin(self, request: HotRequest) -> Reply:
        self._require_accepted()
        check_query(request)
        key = idempotency.read(request)
        body = await body_of_begin(request)
        spec = bodies.read(_SPEC, request, body)
        _provide_keys(spec, key)
        parts, routing = self._parts(spec), self._service.key_routing
        if routing.are_own(parts):
            return await self._store(spec, request)
        if was_forwarded(request.scope):
            await routing.require_own(parts, lambda _: self._is_known(spec))
            return await self._store(spec, request)
        ((visits, _),) = parts.items()
        forwarded = self._service.build_forwarded(request.scope, body)
        is_known, store = partial(self._is_known, spec), partial(self._store, spec, request)
        return await routing.visit(visits, forwarded, is_known, store)

    def _require_accepted(self) -> None:
        """Raises Problem where the store takes no transactions."""
        if self._service.store.config.reject_transaction_message:
            raise Problem(
                problems.TRANSACTIONS_REJECTED,
                "rejectTransactionMessage is true: produce the messages without a transaction, or"
                " remove the setting",
            )

    def _prepare_begin(self, request: HotRequest) -> Prepared:
        self._require_accepted()
        check_query(request)
        key = idempotency.read(request)
        client = self._client_of(request)
        host = produce.client_host(*read_client(request.scope, self._service.api.auth))
        is_json = _says_json(request)

        def begin(body: bytes, _: Mapping[str, str]) -> http.HotResult:
            if not is_json:
                return None
            bodies.check_values(body, VALUES_MAX)
            spec = bodies.decode(_SPEC, body)
            if key is None and (begun := self._plain.begin(spec, host)) is not None:
                return begun
            _provide_keys(spec, key)
            if not self._service.key_routing.are_own(self._parts(spec)):
                return None
            return self._begun(spec, client)

        return Prepared(begin, HTTPStatus.CREATED)

    def _parts(self, spec: TransactionSpec) -> Parts:
        """The shards that a begin visits: those of its first message's key, unless the client names
        one. No parts: it begins here. Raises Problem (422) for a named shard that is unknown."""
        service = self._service
        members = service.shards.members
        if spec.shard is not None:
            if spec.shard not in members.numbers:
                service.shards.require_lists(spec.shard)
                raise Problem(problems.BODY_INVALID, f"there is no shard {spec.shard} here")
            return {(spec.shard,): [0]}
        if members.alone:
            return {}
        window_ms = service.store.config.unique_key_window
        return service.key_routing.parts([spec.messages[0].uniq_key], window_ms)

    async def _is_known(self, spec: TransactionSpec) -> bool:
        """Whether the transaction was begun here before. Raises Problem, TransactionsNotLoaded."""
        keys = [each.uniq_key for each in spec.messages if each.uniq_key is not None]
        engine = self._service.transactions.engine
        return await asyncio.to_thread(engine.knows, spec.topic, keys)

    async def _store(self, spec: TransactionSpec, request: HotRequest) -> Reply:
        """Raises Problem, StorageError."""
        return await _reply(self._begun(spec, self._client_of(request)), HTTPStatus.CREATED)

    def _client_of(self, request: HotRequest) -> str:
        """``address:port`` of the producer."""
        return format_address(read_client(request.scope, self._service.api.auth))

    def _begun(self, spec: TransactionSpec, client: str) -> FutureReply:
        """Raises Problem, StorageError."""
        service = self._service
        service.require_transactions()
        topic = service.topics.get(spec.topic) or self._look_up(spec.topic)
        command = self._requests.read(spec, topic, client)

        def answer(result: asyncio.Future[Any]) -> bytes:
            found = result.result()
            return _encode(
                BegunTransaction(
                    transaction_id=f"{service.settings.shard}-{found.key}",
                    state=STATES[found.state],
                )
            )

        return FutureReply(service.transactions.turns.begin(command), answer)

    def _look_up(self, name: str) -> TopicConfig:
        """A topic that takes messages. Raises TopicNameError, TopicUnknown, Problem."""
        store = self._service.store
        _check_send_topic(name, store.format)
        topic = store.topic(name)
        topic.require_writable()
        self._service.topics[name] = topic
        return topic

    # commit and roll back -------------------------------------------------------------------

    async def _decide(self, verdict: Verdict, request: HotRequest) -> Reply:
        check_query(request)
        body = await request.body()
        why = bodies.read(_REASON, request, body).reason if body else ""
        other, key = self._find(request.params["id"], is_forwarded=was_forwarded(request.scope))
        if other is not None:
            return await self._relayed(other, request, body)
        return await _reply(self._decided(key, verdict, why), HTTPStatus.OK)

    def _prepare_decision(self, verdict: Verdict, request: HotRequest) -> Prepared:
        check_query(request)
        is_json, is_forwarded = _says_json(request), was_forwarded(request.scope)

        def begin(body: bytes, params: Mapping[str, str]) -> http.HotResult:
            if body and not is_json:
                return None
            why = bodies.decode(_REASON, body).reason if body else ""
            other, key = self._find(params["id"], is_forwarded=is_forwarded)
            if other is not None:
                return None
            decided = self._plain.decide(key, verdict, why or _BY_PRODUCER)
            return self._decided(key, verdict, why) if decided is None else decided

        def decide(transaction_id: bytes, start: bytes, ending: bytes) -> bytes | None:
            if self._plain.replies_wait:
                return None
            other, key = self._find(transaction_id.decode(), is_forwarded=is_forwarded)
            decided = self._plain.decide(key, verdict, _BY_PRODUCER) if other is None else None
            if decided is None:
                return None
            assert isinstance(decided, bytes), "a reply that waits for no disk"
            return start + _JSON_FIELDS % len(decided) + ending + decided

        return Prepared(begin, lane=decide)

    def _find(self, transaction_id: str, *, is_forwarded: bool) -> tuple[ShardEntry | None, str]:
        """The other shard that has a transaction (None: this one), and its key. Raises Problem."""
        check_transaction_id(transaction_id)
        return shard_and_key(self._service.shards, transaction_id, is_forwarded=is_forwarded)

    def _decided(self, key: str, verdict: Verdict, why: str) -> FutureReply:
        """Raises Problem, StorageError."""
        service = self._service
        service.require_transactions()

        def answer(result: asyncio.Future[Any]) -> bytes:
            return _encode(view(service.settings.shard, result.result().snapshot))

        command = Decide(key, verdict, why or _BY_PRODUCER)
        return FutureReply(service.transactions.turns.decide(command), answer)

    async def _relayed(self, other: ShardEntry, request: HotRequest, body: bytes) -> Reply:
        """Another shard's answer. Raises Problem."""
        shards = self._service.shards
        return await shards.reply(other, ForwardedRequest.of(request.scope, str(shards.own), body))


_check_send_topic: Final = lru_cache(maxsize=TOPICS_KEPT)(topic_names.check_send_topic)
"""Refusals are not kept."""


async def _reply(deferred: FutureReply, status: int) -> Reply:
    found = await http.await_reply(deferred)
    return Reply(found, status) if isinstance(found, bytes) else found


def _says_json(request: HotRequest) -> bool:
    return bodies.is_json(request.media_type.decode("latin-1"))


def _provide_keys(spec: TransactionSpec, idempotency_key: str | None) -> None:
    if idempotency_key is not None:
        idempotency.provide(idempotency_key, spec.messages)
