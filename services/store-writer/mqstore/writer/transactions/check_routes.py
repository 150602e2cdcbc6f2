"""For coordinators, role system: due checks, reports of checks, and producers to call."""

from __future__ import annotations

import asyncio
import heapq
import re
from collections.abc import Awaitable
from http import HTTPStatus
from typing import Annotated, Final, TypeVar

import msgspec
from fastapi import Query, Response

from mqstore.service import bodies, problems
from mqstore.service.app import Api, json_text
from mqstore.service.endpoint import Endpoint, Hot
from mqstore.service.http import HotRequest, Reply
from mqstore.service.paging import begin_of, next_cursor
from mqstore.service.problems import Problem
from mqstore.service.transaction_parameters import (
    Group,
    Name,
    ProducerSecret,
    check_query,
)
from mqstore.service.transaction_structs import (
    CheckReport,
    CountedChecks,
    LeaseChecks,
    LeasedChecks,
    ProducerTarget,
)
from mqstore.storage import topic_names
from mqstore.storage.errors import StorageError
from mqstore.wire import checks as operations
from mqstore.wire.checks import (
    PRODUCER_NAME,
    RegisteredProducers,
    producer_key,
    producers_scope,
)
from mqstore.writer.service import WriterService
from mqstore.writer.transactions.checks import Checks
from mqstore.writer.transactions.ids import shard_and_key
from mqstore.writer.transactions.producers import Producer, Target
from mqstore.writer.transactions.refusals import refusal_of

_NAME: Final = re.compile(PRODUCER_NAME)
_LEASE: Final = msgspec.json.Decoder(LeaseChecks)
_REPORT: Final = msgspec.json.Decoder(CheckReport)
_TARGET: Final = msgspec.json.Decoder(ProducerTarget)
T = TypeVar("T")
_encode: Final = msgspec.json.Encoder().encode


class CheckRoutes:
    """Used on the event loop only."""

    def __init__(self, service: WriterService) -> None:
        self._service = service

    def add(self, api: Api) -> None:
        """Put the routes into store-writer's interface."""
        Endpoint(operations.LEASE_CHECKS, self._lease, Hot()).add(api)
        Endpoint(operations.REPORT_CHECKS, self._report, Hot()).add(api)
        Endpoint(operations.REGISTER_TARGET, self._register, Hot()).add(api)
        Endpoint(operations.KNOWN_TARGETS, self.producers).add(api)
        Endpoint(operations.REMOVE_TARGET, self.remove_target).add(api)

    async def producers(
        self,
        page: Annotated[operations.ProducersParameters, Query()],
    ) -> Response:
        """As registered with this shard, by group and name, in pages. Their secrets are not
        shown."""
        known = [each for each in self._service.producers if page.group in (None, each.group)]
        return json_text(await asyncio.to_thread(self._encode_page, known, page))

    def _encode_page(self, known: list[Producer], page: operations.ProducersParameters) -> str:
        scope = producers_scope(page.group)
        begin = begin_of(page, scope)
        keys = {producer_key(each.group, each.name): each for each in known}
        first = heapq.nsmallest(page.limit + 1, (key for key in keys if key > begin))
        names, view = first[: page.limit], self._service.producers.view
        found = RegisteredProducers(
            producers=tuple([view(keys[name]) for name in names]),
            next=next_cursor(names, scope, is_more=len(first) > page.limit),
        )
        return found.model_dump_json(by_alias=True)

    async def remove_target(self, group: Group, name: Name, secret: ProducerSecret = None) -> None:
        """Remove a registered producer, which is then called no more. A coordinator sends the
        secret that it was given; without one it removes for an administrator."""
        topic_names.check_group(group)
        if not self._service.producers.remove(group, name, secret):
            raise Problem(problems.PRODUCER_UNKNOWN, f"group {group} has no producer {name}")

    async def _lease(self, request: HotRequest) -> Reply:
        check_query(request)
        terms = bodies.read(_LEASE, request, await request.body())
        gone = asyncio.ensure_future(request.wait_for_disconnect())
        try:
            leasing = asyncio.ensure_future(self._checks().lease(terms, gone.done))
            await asyncio.wait({leasing})
            return Reply(_encode(LeasedChecks(checks=tuple(await _result(leasing)))))
        finally:
            gone.cancel()

    async def _report(self, request: HotRequest) -> Reply:
        check_query(request)
        report = bodies.read(_REPORT, request, await request.body())
        ids = [*(each.transaction_id for each in report.checks), *report.released]
        keys = {each: self._key_of(each) for each in ids}
        counted = await _result(self._checks().report(report, keys))
        return Reply(_encode(CountedChecks(counted=tuple(counted))))

    async def _register(self, request: HotRequest) -> Reply:
        check_query(request)
        group, name = _producer_of(request)
        target = bodies.read(_TARGET, request, await request.body())
        service = self._service
        place = Target(target.url, target.address, target.host)
        is_new = service.producers.find(group, name) is None
        made = service.producers.register(
            *(group, name, place, target.secret, target.lease_seconds), client=target.client
        )
        if service.has_transactions:
            service.transactions.checks.bell.ring()
        view = service.producers.view(made).model_dump_json(by_alias=True)
        return Reply(view.encode(), HTTPStatus.CREATED if is_new else HTTPStatus.OK)

    def _checks(self) -> Checks:
        """Raises Problem (503)."""
        self._service.require_transactions()
        return self._service.transactions.checks

    def _key_of(self, transaction_id: str) -> str:
        """The key of a transaction of this shard. Raises Problem."""
        other, key = shard_and_key(self._service.shards, transaction_id, is_forwarded=True)
        assert other is None
        return key


async def _result(work: Awaitable[T]) -> T:
    """Raises Problem, StorageError: what the store refuses, as clients of transactions see it."""
    try:
        return await work
    except StorageError as error:
        raise refusal_of(error) from error


def _producer_of(request: HotRequest) -> tuple[str, str]:
    """Group and name. Raises Problem, GroupNameError."""
    group, name = request.params["group"], request.params["name"]
    topic_names.check_group(group)
    if _NAME.fullmatch(name) is None:
        raise Problem(
            problems.BAD_PARAMETER, f"name {name[:100]!r} is not 1 to 100 of A-Z a-z 0-9 . _ -"
        )
    return group, name
