"""For coordinators, role system: due checks, reports of checks, and producers to call."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any, Final, TypeVar

import msgspec
from fastapi import Path as PathParameter
from fastapi import Query

from mqstore.service import bodies, problems
from mqstore.service.app import Api, documented, json_content
from mqstore.service.auth import Role
from mqstore.service.http import HotRequest, HotRoute, refuse_unknown
from mqstore.service.problems import Problem, ProblemType
from mqstore.service.reply import Reply
from mqstore.service.transaction_models import (
    ID_EXAMPLE,
    CallableProducer,
    CheckReport,
    CountedChecks,
    LeaseChecks,
    LeasedCheck,
    LeasedChecks,
    ProducerCall,
    ProducerList,
    ProducerTarget,
    SentCheck,
)
from mqstore.storage.codec import topic_names
from mqstore.storage.errors import StorageError
from mqstore.writer import control
from mqstore.writer.service import WriterService
from mqstore.writer.transactions.checks import Checks
from mqstore.writer.transactions.ids import shard_and_key
from mqstore.writer.transactions.producers import Target
from mqstore.writer.transactions.refusals import refusal_of

_PRODUCERS: Final = "/v1/internal/producers"
NAME: Final = re.compile("[A-Za-z0-9._-]{1,100}")
GROUP_LENGTH_MAX: Final = 255
Group = Annotated[str, PathParameter(min_length=1, max_length=120, description="Producer group.")]
Name = Annotated[
    str,
    PathParameter(pattern=f"^{NAME.pattern}$", description="The producer's own, within its group."),
]
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
        api.add_schemas(LeaseChecks, LeasedChecks, LeasedCheck, CallableProducer)
        api.add_schemas(CheckReport, CountedChecks, SentCheck, ProducerCall, ProducerTarget)
        one = _PRODUCERS + "/{group}/{name}"
        for method, path, handler, operation in (
            ("POST", "/v1/transactions:lease-checks", self._lease, _LEASE_OPERATION),
            ("POST", "/v1/transactions:report-checks", self._report, _REPORT_OPERATION),
            ("PUT", one, self._register, _REGISTER_OPERATION),
        ):
            api.add_hot(HotRoute(method, path, Role.SYSTEM, handler, operation))
        add = partial(control.add, api, tag="internal", role=Role.SYSTEM)
        add("GET", _PRODUCERS, self.producers, "Producers that can be called", HTTPStatus.OK, {})
        gone = problems.responses(problems.PRODUCER_UNKNOWN, problems.GROUP_INVALID)
        add("DELETE", one, self.remove_target, "Remove a producer", HTTPStatus.NO_CONTENT, gone)

    async def producers(
        self, group: Annotated[str | None, Query(max_length=GROUP_LENGTH_MAX)] = None
    ) -> ProducerList:
        """As registered with this shard. Their secrets are not shown."""
        known = self._service.producers
        found = [each for each in known if group in (None, each.group)]
        return ProducerList(producers=[known.view(each) for each in found])

    async def remove_target(self, group: Group, name: Name) -> None:
        """It is not called any more."""
        topic_names.check_group(group)
        if not self._service.producers.remove(group, name):
            raise Problem(problems.PRODUCER_UNKNOWN, f"group {group} has no producer {name}")

    async def _lease(self, request: HotRequest) -> Reply:
        refuse_unknown(request.query(), ())
        terms = bodies.read(_LEASE, request, await request.body())
        gone = asyncio.ensure_future(request.gone())
        try:
            leasing = asyncio.ensure_future(self._checks().lease(terms, gone.done))
            await asyncio.wait({leasing})
            return Reply(_encode(LeasedChecks(await _result(leasing))))
        finally:
            gone.cancel()

    async def _report(self, request: HotRequest) -> Reply:
        refuse_unknown(request.query(), ())
        report = bodies.read(_REPORT, request, await request.body())
        ids = [*(each.transaction_id for each in report.checks), *report.released]
        keys = {each: self._key_of(each) for each in ids}
        counted = await _result(self._checks().report(report, keys))
        return Reply(_encode(CountedChecks(counted)))

    async def _register(self, request: HotRequest) -> Reply:
        refuse_unknown(request.query(), ())
        group, name = _producer_of(request)
        target = bodies.read(_TARGET, request, await request.body())
        service = self._service
        place = Target(target.url, target.address, target.host)
        made = service.producers.register(group, name, place, target.secret, target.lease_seconds)
        if service.has_transactions:
            service.transactions.checks.bell.ring()
        return Reply(service.producers.view(made).model_dump_json(by_alias=True).encode())

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
    if NAME.fullmatch(name) is None:
        raise Problem(
            problems.BAD_PARAMETER, f"name {name[:100]!r} is not 1 to 100 of A-Z a-z 0-9 . _ -"
        )
    return group, name


def _operation(
    name: str,
    summary: str,
    text: str,
    request: str | None,
    reply: dict[int | str, Any],
    example: Any = None,
) -> dict[str, Any]:
    found: dict[str, Any] = {
        "operationId": name,
        "tags": ["internal"],
        "summary": summary,
        "description": text,
        "responses": {str(status): answer for status, answer in reply.items()},
    }
    if request is not None:
        found["requestBody"] = {"required": True, "content": json_content(request, example)}
    return found


def _kinds(*kinds: ProblemType) -> tuple[ProblemType, ...]:
    return (
        *kinds,
        problems.HEADERS_TOO_LARGE,
        problems.INTERNAL,
        problems.BAD_PARAMETER,
        problems.COORDINATOR_NOT_READY,
        problems.STORE_NOT_WRITABLE,
        *problems.READ_ONLY_KINDS,
        problems.STORE_FAILED,
        *problems.GUARDED,
    )


_PATH_PARAMETERS: Final[dict[str, Any]] = {
    "parameters": [
        {
            "name": "group",
            "in": "path",
            "required": True,
            "description": "Producer group.",
            "schema": {"type": "string", "minLength": 1, "maxLength": 120},
            "example": "billing",
        },
        {
            "name": "name",
            "in": "path",
            "required": True,
            "description": "The producer's own, within its group.",
            "schema": {"type": "string", "pattern": f"^{NAME.pattern}$"},
            "example": "billing-1",
        },
    ]
}
_TARGET_EXAMPLE: Final[dict[str, Any]] = {
    "url": "https://billing.example.org/checks",
    "address": "203.0.113.7",
    "host": "billing.example.org",
    "secret": "the output of openssl rand -hex 32",
}
_LEASE_OPERATION: Final = _operation(
    "lease_checks",
    "Lease due checks",
    "Transactions whose producer gave no decision in time, each to one caller for `leaseSeconds`. "
    "Report what became of them; a lease that is not reported ends, and the check is due again.",
    "LeaseChecks",
    documented("LeasedChecks", {"checks": []}, *_kinds(*problems.WITH_BODY)),
    {"registered": True, "max": 16},
)
_REPORT_OPERATION: Final = _operation(
    "report_checks",
    "Report checks that were sent",
    "Counts the checks in further copies of their half messages, as a broker does. `released` are "
    "due again at once. `producers` says which calls were answered.",
    "CheckReport",
    documented(
        "CountedChecks",
        {"counted": [ID_EXAMPLE]},
        *_kinds(problems.TRANSACTION_UNKNOWN, problems.WRONG_SHARD, *problems.WITH_BODY),
    ),
    {"checks": [{"transactionId": ID_EXAMPLE, "by": "billing-1", "answer": "unknown"}]},
)
_REGISTER_OPERATION: Final = (
    _operation(
        "register_producer_target",
        "Register a producer that can be called",
        "By a coordinator, which has checked the address. Kept in memory until the lease ends.",
        "ProducerTarget",
        {
            200: {"description": "Registered."},
            **problems.responses(*_kinds(problems.GROUP_INVALID, *problems.WITH_BODY)),
        },
        _TARGET_EXAMPLE,
    )
    | _PATH_PARAMETERS
)
