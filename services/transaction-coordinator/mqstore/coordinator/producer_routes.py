"""Routes by which producers register where they are called about their transactions."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Annotated, Final
from urllib.parse import quote

import httpx
import msgspec
from fastapi import Path as PathParameter
from fastapi import Query
from fastapi.responses import Response

from mqstore.coordinator.errors import ShardUnavailable
from mqstore.coordinator.relay import response_of
from mqstore.coordinator.shards import Shards
from mqstore.coordinator.targets import Allowed, TargetRefused
from mqstore.service import problems
from mqstore.service.app import Api
from mqstore.service.auth import Role
from mqstore.service.problems import Problem, responses
from mqstore.service.transaction_models import (
    Callback,
    ProducerList,
    ProducerTarget,
    ProducerView,
)
from mqstore.storage.codec import topic_names

_BASE: Final = "/v1/producers"
_ONE: Final = _BASE + "/{group}/{name}"
_REGISTRY: Final = "/v1/internal/producers"
TIMEOUT_S: Final = 5.0
"""Seconds that a shard has to keep or show registrations."""
Group = Annotated[str, PathParameter(min_length=1, max_length=120, description="Producer group.")]
Name = Annotated[
    str,
    PathParameter(
        pattern="^[A-Za-z0-9._-]{1,100}$", description="The producer's own, within its group."
    ),
]


class ProducerRoutes:
    """Registrations, which every shard keeps. Used on the event loop only."""

    def __init__(self, shards: Shards, allowed: Allowed) -> None:
        self._shards = shards
        self._allowed = allowed

    def add(self, api: Api) -> None:
        for method, path, endpoint, summary, role, kinds in (
            ("PUT", _ONE, self.register, "Register a callback", Role.PRODUCE, _REGISTERING),
            ("DELETE", _ONE, self.remove, "End it", Role.PRODUCE, _REMOVING),
            ("GET", _BASE, self.producers, "Registered producers", Role.ADMIN, ()),
        ):
            no_content = method == "DELETE"
            api.app.add_api_route(
                path,
                endpoint,
                methods=[method],
                summary=summary,
                status_code=HTTPStatus.NO_CONTENT if no_content else HTTPStatus.OK,
                response_model={"PUT": ProducerView, "GET": ProducerList}.get(method),
                responses=responses(
                    *kinds,
                    problems.OVERLOADED,
                    problems.COORDINATOR_NOT_READY,
                    *problems.GUARDED,
                ),
                tags=["checks"],
                dependencies=[api.requires(role)],
                name=f"{endpoint.__name__}_producer" if path == _ONE else endpoint.__name__,
            )

    async def register(
        self, group: Group, name: Name, callback: Callback
    ) -> ProducerView | Response:
        """Transactions of the group are checked there by a POST with the transaction as
        `GET /v1/transactions/{id}` shows it, answered by 200 and
        `{"decision": "commit" | "rollback" | "unknown"}`. Register again before the lease is over,
        as RocketMQ's producers do every 30 s: a shard that was restarted knows only the producers
        that have done so since."""
        topic_names.check_group(group)
        try:
            target = await self._allowed.target(callback.url)
        except TargetRefused as error:
            raise Problem(problems.CALLBACK_REFUSED, str(error)) from None
        kept = ProducerTarget(
            str(target.url), target.address, target.host, callback.secret, callback.lease_seconds
        )
        replies = await self._everywhere("PUT", _target(group, name), msgspec.json.encode(kept))
        made = [each for each in replies if each.is_success]
        if not made:
            return response_of(replies[0])
        return _worst([ProducerView.model_validate_json(each.content) for each in made])

    async def remove(self, group: Group, name: Name) -> Response:
        """It is called no more."""
        replies = await self._everywhere("DELETE", _target(group, name))
        removed = [each for each in replies if each.is_success]
        return response_of((removed or replies)[0])

    async def producers(
        self, group: Annotated[str | None, Query(max_length=255)] = None
    ) -> ProducerList | Response:
        """Their secrets are not shown."""
        replies = await self._everywhere("GET", _REGISTRY)
        answered = [each for each in replies if each.is_success]
        if not answered:
            return response_of(replies[0])
        found: dict[tuple[str, str], list[ProducerView]] = {}
        for reply in answered:
            for each in ProducerList.model_validate_json(reply.content).producers:
                if group in (None, each.producer_group):
                    found.setdefault((each.producer_group, each.name), []).append(each)
        return ProducerList(producers=[_worst(found[key]) for key in sorted(found)])

    async def _everywhere(
        self, method: str, target: str, body: bytes = b""
    ) -> list[httpx.Response]:
        """The replies of the shards that answer. Raises Problem where none does."""
        results = await asyncio.gather(
            *(shard.call(method, target, body, TIMEOUT_S) for shard in self._shards),
            return_exceptions=True,
        )
        replies: list[httpx.Response] = []
        trouble: ShardUnavailable | None = None
        for result in results:
            if isinstance(result, httpx.Response):
                replies.append(result)
            elif isinstance(result, ShardUnavailable):
                trouble = result
            else:
                raise result
        if trouble is not None and not replies:
            raise trouble.problem
        return replies


def _target(group: str, name: str) -> str:
    return f"{_REGISTRY}/{quote(group, safe='')}/{quote(name, safe='')}"


def _worst(views: list[ProducerView]) -> ProducerView:
    """One producer as one of several shards knows it: where its calls fail, if they do."""
    return max(views, key=lambda view: (view.failures, view.expires_in))


_REMOVING: Final = (problems.PRODUCER_UNKNOWN, problems.GROUP_INVALID)
_REGISTERING: Final = (
    problems.CALLBACK_REFUSED,
    problems.GROUP_INVALID,
    *problems.WITH_BODY,
)
