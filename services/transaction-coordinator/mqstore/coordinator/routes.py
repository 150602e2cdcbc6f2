"""The transaction coordinator's routes."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Annotated, Any, Final

import msgspec
from fastapi import Depends, Query
from fastapi import Path as PathParameter
from fastapi.responses import Response

from mqstore.coordinator import errors
from mqstore.coordinator.answers import problem_of, result_of
from mqstore.coordinator.coordinator import Coordinator
from mqstore.coordinator.decide import Decide
from mqstore.coordinator.halves import Verdict
from mqstore.coordinator.models import (
    ID_EXAMPLE,
    ID_LENGTH_MAX,
    ID_TEXT,
    CheckTaking,
    LeaderView,
    Resolution,
    ShardView,
    State,
    Taken,
    TransactionList,
    TransactionView,
)
from mqstore.coordinator.service import CoordinatorService
from mqstore.coordinator.shards import Shard
from mqstore.coordinator.views import Listing, place_of, view
from mqstore.service import problems
from mqstore.service.app import Api, documented, json_response
from mqstore.service.auth import Role
from mqstore.service.problems import Problem, responses
from mqstore.storage.lookup import key_cursor

LIST_MAX: Final = 1_000
CURSOR_LENGTH_MAX: Final = 4_000
CHECK_POLL_S: Final = 0.25
_BASE: Final = "/v1/transactions"
TransactionId = Annotated[
    str,
    PathParameter(
        alias="id",
        max_length=ID_LENGTH_MAX,
        description=ID_TEXT,
        openapi_examples={"one": {"value": ID_EXAMPLE}},
    ),
]


class Routes:
    """People look and resolve, producers take checks; what they do most ``hot_routes`` has."""

    def __init__(self, service: CoordinatorService) -> None:
        self._service = service

    def add(self, api: Api) -> None:
        """Put all routes of the coordinator into its interface."""
        unknown = (problems.TRANSACTION_UNKNOWN,)
        decided = (*unknown, problems.TRANSACTION_DECIDED, problems.TRANSACTION_GONE)
        one = _BASE + "/{id}"
        listed = (problems.BAD_CURSOR,)
        produce, admin = Role.PRODUCE, Role.ADMIN
        forwarder = self._service.forwarder
        view_, list_, consume = TransactionView, TransactionList, Role.CONSUME
        api.add_schemas(view_, list_, Taken)
        for method, path, endpoint, summary, role, answer, kinds in (
            ("POST", one + ":resolve", self.resolve, "Resolve one by hand", admin, view_, decided),
            ("GET", _BASE, self.transactions, "Transactions, oldest first", consume, list_, listed),
            ("GET", one, self.transaction, "One transaction's story", consume, view_, unknown),
            ("POST", "/v1/checks", self.checks, "Take checks of a group", produce, Taken, ()),
            ("GET", "/v1/leader", self.leader, "Who leads", consume, None, ()),
        ):
            with_body = problems.WITH_BODY if method == "POST" else ()
            elsewhere = [] if endpoint == self.leader else [Depends(forwarder.here_or_there)]
            api.app.add_api_route(
                path,
                endpoint,
                methods=[method],
                summary=summary,
                responses={
                    **_answered(answer),
                    **responses(
                        *kinds,
                        *with_body,
                        problems.OVERLOADED,
                        problems.COORDINATOR_NOT_READY,
                        problems.STORE_NOT_WRITABLE,
                        *problems.GUARDED,
                    ),
                },
                tags=["checks" if path == "/v1/checks" else "transactions"],
                dependencies=[api.requires(role), *elsewhere],
                name=endpoint.__name__,
            )

    async def resolve(self, id_: TransactionId, resolution: Resolution) -> Response:
        """A person's decision, with its reason, which is kept; also of one that was set aside."""
        shard, key = self._find(id_)
        asked = Decide(key, Verdict(resolution.decision), resolution.reason, by_hand=True)
        decided = await result_of(shard.worker.decide, asked)
        return json_response(view(shard.ordinal, decided.transaction))

    async def transaction(self, id_: TransactionId) -> Response:
        shard, key = self._find(id_)
        return json_response(
            await result_of(shard.worker.ask, lambda c: view(shard.ordinal, c.find(key)))
        )

    async def transactions(
        self,
        state: Annotated[State | None, Query(description="Default: pending and set-aside.")] = None,
        group: Annotated[str | None, Query(max_length=255, description="Producer group.")] = None,
        older_than: Annotated[
            int, Query(alias="olderThan", ge=0, le=2**31, description="Seconds since it was begun.")
        ] = 0,
        limit: Annotated[int, Query(ge=1, le=LIST_MAX)] = 100,
        cursor: Annotated[
            str | None,
            Query(max_length=CURSOR_LENGTH_MAX, description="`next` of the answer before."),
        ] = None,
    ) -> Response:
        """Over all shards. Decided ones as far as remembered: the newest 50,000 of each."""
        query = f"transactions {state} {group!r}"
        after = "" if cursor is None else key_cursor.decode_name(cursor, query)
        asked = Listing(state, group, older_than * 1000, after, limit + 1)
        every = list(self._service.shards)
        answers = await asyncio.gather(
            *(result_of(each.worker.ask, partial(asked.of, each.ordinal)) for each in every),
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
        found = sorted(found, key=place_of)[: limit + 1]
        shown = found[:limit]
        cursor = None if shown == found else key_cursor.encode_name(place_of(shown[-1]), query)
        return json_response(TransactionList(shown, cursor, not missing, missing))

    async def checks(self, asked: CheckTaking) -> Response:
        """Transactions of a group whose producer went silent. Decide each, or leave it, which means
        unknown: it comes again later. A check counts when it is answered here."""
        loop = asyncio.get_running_loop()
        until = loop.time() + asked.wait
        found = await self._taken(asked)
        while not found and loop.time() < until and not self._service.interrupted.is_set():
            await asyncio.sleep(CHECK_POLL_S)
            found = await self._taken(asked)
        return json_response(Taken(found))

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
                found += await result_of(shard.worker.ask, take)
        return found

    def _find(self, transaction_id: str) -> tuple[Shard, str]:
        """Raises Problem."""
        try:
            return self._service.shards.find(transaction_id)
        except errors.TransactionUnknown as error:
            raise problem_of(error) from None


def _answered(schema: type[msgspec.Struct] | None) -> dict[int | str, dict[str, Any]]:
    """OpenAPI's answer of a route that makes its JSON itself."""
    return {} if schema is None else documented(schema.__name__, text="Successful Response")


def _take(shard: int, group: str, count: int, coordinator: Coordinator) -> list[TransactionView]:
    """Checks that count as sent: whoever asked for them gets them now."""
    keys = [each.key for each in coordinator.due([group])][:count]
    coordinator.sending(keys)
    return [view(shard, coordinator.find(key)) for key in coordinator.sent(keys, "poll")]
