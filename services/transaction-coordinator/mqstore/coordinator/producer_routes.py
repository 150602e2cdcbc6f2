"""Routes by which producers register where they are called about their transactions."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from http import HTTPStatus
from typing import Annotated, Final
from urllib.parse import urlencode

from fastapi import Query, Request
from fastapi.responses import Response

from mqstore.coordinator.errors import ShardUnavailable
from mqstore.coordinator.relay import response_of
from mqstore.coordinator.shards import Shard, Shards
from mqstore.coordinator.targets import Allowed, TargetRefused
from mqstore.service import problems
from mqstore.service.app import Api
from mqstore.service.auth import included_roles
from mqstore.service.endpoint import Endpoint
from mqstore.service.limits import client_of
from mqstore.service.paging import begin_of, next_cursor
from mqstore.service.problems import Problem
from mqstore.service.relay_connections import RelayedReply
from mqstore.service.transaction_parameters import Group, Name, ProducerSecret
from mqstore.storage import topic_names
from mqstore.wire import checks as operations
from mqstore.wire.checks import (
    SECRET_HEADER,
    Callback,
    ProducerTarget,
    RegisteredProducer,
    RegisteredProducers,
    producer_key,
    producers_scope,
)
from mqstore.wire.operation import Role

TIMEOUT_S: Final = 5.0
"""Seconds that a shard has to keep or show registrations."""


class ProducerRoutes:
    """Registrations, which every shard keeps. Used on the event loop only."""

    def __init__(self, shards: Shards, allowed: Allowed) -> None:
        self._shards = shards
        self._allowed = allowed

    def add(self, api: Api) -> None:
        """Put the routes into the coordinator's interface."""
        self._auth = api.auth
        Endpoint(operations.REGISTER_PRODUCER, self.register).add(api)
        Endpoint(operations.REMOVE_PRODUCER, self.remove).add(api)
        Endpoint(operations.PRODUCERS, self.producers).add(api)

    async def register(
        self, group: Group, name: Name, callback: Callback, request: Request
    ) -> RegisteredProducer | Response:
        """Transactions of the group are checked there by a POST with the transaction as
        `GET /v1/transactions/{id}` shows it, answered by 200 and
        `{"decision": "commit" | "rollback" | "unknown"}`. Register again before the lease is over,
        as RocketMQ's producers do every 30 s: a shard that was restarted knows only the producers
        that have done so since. The secret is that of the registration: 409 `producer-taken` for
        another one, until the lease ends."""
        topic_names.check_group(group)
        try:
            target = await self._allowed.target(callback.url)
        except TargetRefused as error:
            raise Problem(problems.CALLBACK_REFUSED, str(error)) from None
        kept = ProducerTarget(
            url=str(target.url),
            address=target.address,
            host=target.host,
            secret=callback.secret,
            lease_seconds=callback.lease_seconds,
            client=client_of(request.scope),
        )
        path = operations.REGISTER_TARGET.path_for(group=group, name=name)
        body = kept.model_dump_json(by_alias=True).encode()
        replies = await self._on(self._shards, "PUT", path, body)
        if taken := [each for each in replies.values() if each.status == HTTPStatus.CONFLICT]:
            # A shard that was restarted does not know yet whose the name is.
            created = [at for at, each in replies.items() if each.status == HTTPStatus.CREATED]
            if created:
                await self._on(created, "DELETE", path, secret=callback.secret)
            return response_of(taken[0])
        made = [each for each in replies.values() if each.is_success]
        if not made:
            return response_of(next(iter(replies.values())))
        return _worst([RegisteredProducer.model_validate_json(each.body) for each in made])

    async def remove(
        self, group: Group, name: Name, request: Request, secret: ProducerSecret = None
    ) -> Response:
        """Remove a registered producer on all shards; it is then called no more. An application
        sends the secret of its registration; an administrator needs none."""
        roles = self._auth.roles(request.scope["headers"])
        if secret is None and roles is not None and Role.ADMIN not in included_roles(roles):
            raise Problem(
                problems.FORBIDDEN,
                f"send the secret of the registration in the header {SECRET_HEADER}, or use a"
                " token of the role admin",
            )
        path = operations.REMOVE_TARGET.path_for(group=group, name=name)
        replies = [*(await self._on(self._shards, "DELETE", path, secret=secret)).values()]
        taken = [each for each in replies if each.status == HTTPStatus.CONFLICT]
        removed = [each for each in replies if each.is_success]
        return response_of((taken or removed or replies)[0])

    async def producers(
        self,
        page: Annotated[operations.ProducersParameters, Query()],
    ) -> RegisteredProducers | Response:
        """By group and name, in pages. Their secrets are not shown."""
        group = page.group
        scope = producers_scope(group)
        begin_of(page, scope)  # a cursor of another list is refused here
        query = urlencode(page.model_dump(by_alias=True, exclude_none=True))
        path = f"{operations.KNOWN_TARGETS.path}?{query}"
        replies = await self._on(self._shards, "GET", path)
        answered = [each for each in replies.values() if each.is_success]
        if not answered:
            return response_of(next(iter(replies.values())))
        found: dict[str, list[RegisteredProducer]] = {}
        is_more = False
        for reply in answered:
            part = RegisteredProducers.model_validate_json(reply.body)
            is_more = is_more or part.next is not None
            for each in part.producers:
                if group in (None, each.producer_group):
                    found.setdefault(producer_key(each.producer_group, each.name), []).append(each)
        names = sorted(found)[: page.limit]
        return RegisteredProducers(
            producers=tuple([_worst(found[name]) for name in names]),
            next=next_cursor(names, scope, is_more=is_more or len(found) > page.limit),
        )

    async def _on(
        self,
        shards: Iterable[Shard],
        method: str,
        target: str,
        body: bytes = b"",
        *,
        secret: str | None = None,
    ) -> dict[Shard, RelayedReply]:
        """The replies of the shards that answer. Raises Problem where none does."""
        headers = {} if secret is None else {SECRET_HEADER: secret}
        called = [*shards]
        results = await asyncio.gather(
            *(shard.call(method, target, body, TIMEOUT_S, headers) for shard in called),
            return_exceptions=True,
        )
        replies: dict[Shard, RelayedReply] = {}
        trouble: ShardUnavailable | None = None
        for shard, result in zip(called, results, strict=True):
            if isinstance(result, RelayedReply):
                replies[shard] = result
            elif isinstance(result, ShardUnavailable):
                trouble = result
            else:
                raise result
        if trouble is not None and not replies:
            raise trouble.problem
        return replies


def _worst(views: list[RegisteredProducer]) -> RegisteredProducer:
    """One producer as one of several shards knows it: where its calls fail, if they do."""
    return max(views, key=lambda view: (view.failures, view.expires_in))
