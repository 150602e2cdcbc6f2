"""Checks of undecided transactions: producers poll for them or are called; coordinators lease them
from the shards."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from mqstore.wire import problems
from mqstore.wire.examples import transactions as examples
from mqstore.wire.operation import Nothing, Operation, Role, Target
from mqstore.wire.transactions import (
    PRODUCER_NAME,
    Callback,
    CheckReport,
    Checks,
    CheckTaking,
    CountedChecks,
    LeaseChecks,
    LeasedChecks,
    Producer,
    Producers,
    ProducerTarget,
)

_PRODUCERS: Final = "/v1/producers"
_ONE: Final = _PRODUCERS + "/{group}/{name}"
_REGISTRY: Final = "/v1/internal/producers"
_NOT_READY: Final = (problems.OVERLOADED, problems.COORDINATOR_NOT_READY)
_OF_STORE: Final = (
    problems.COORDINATOR_NOT_READY,
    problems.STORE_NOT_WRITABLE,
    *problems.READ_ONLY_KINDS,
    problems.STORE_FAILED,
)
_GROUP_AND_NAME: Final[tuple[Mapping[str, Any], ...]] = (
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
        "description": "Name of the producer, unique in its group.",
        "schema": {"type": "string", "pattern": f"^{PRODUCER_NAME}$"},
        "example": "billing-1",
    },
)

TAKE_CHECKS: Final = Operation(
    name="checks",
    targets=(Target.COORDINATOR,),
    method="POST",
    path="/v1/checks",
    role=Role.PRODUCE,
    summary="Take checks of a group",
    tag="checks",
    request=CheckTaking,
    reply=Checks,
    problems=(*problems.WITH_BODY, *_NOT_READY, problems.STORE_NOT_WRITABLE),
)
REGISTER_PRODUCER: Final = Operation(
    name="register_producer",
    targets=(Target.COORDINATOR,),
    method="PUT",
    path=_ONE,
    role=Role.PRODUCE,
    summary="Register a callback",
    tag="checks",
    request=Callback,
    reply=Producer,
    problems=(
        problems.CALLBACK_REFUSED,
        problems.GROUP_INVALID,
        *problems.WITH_BODY,
        *_NOT_READY,
    ),
)
REMOVE_PRODUCER: Final = Operation(
    name="remove_producer",
    targets=(Target.COORDINATOR,),
    method="DELETE",
    path=_ONE,
    role=Role.PRODUCE,
    summary="Remove a registration",
    tag="checks",
    reply=Nothing,
    status=204,
    problems=(problems.PRODUCER_UNKNOWN, problems.GROUP_INVALID, *_NOT_READY),
)
PRODUCERS: Final = Operation(
    name="producers",
    targets=(Target.COORDINATOR,),
    path=_PRODUCERS,
    role=Role.ADMIN,
    summary="Registered producers",
    tag="checks",
    reply=Producers,
    problems=_NOT_READY,
)

_internal = partial(Operation, targets=(Target.WRITER,), role=Role.SYSTEM, tag="internal")
LEASE_CHECKS: Final[Operation[LeasedChecks]] = _internal(
    name="lease_checks",
    method="POST",
    path="/v1/transactions:lease-checks",
    summary="Lease due checks",
    description="Transactions whose producer gave no decision in time, each to one caller for "
    "`leaseSeconds`. Report what became of them; a lease that is not reported ends, and the check "
    "is due again.",
    request=LeaseChecks,
    request_example=examples.LEASE,
    reply=LeasedChecks,
    example={"checks": []},
    problems=_OF_STORE,
)
REPORT_CHECKS: Final[Operation[CountedChecks]] = _internal(
    name="report_checks",
    method="POST",
    path="/v1/transactions:report-checks",
    summary="Report checks that were sent",
    description="Counts the checks in further copies of their half messages, as a broker does. "
    "`released` are due again at once. `producers` says which calls were answered.",
    request=CheckReport,
    request_example=examples.REPORT,
    reply=CountedChecks,
    example={"counted": [examples.ID]},
    problems=(problems.TRANSACTION_UNKNOWN, problems.WRONG_SHARD, *_OF_STORE),
)
REGISTER_TARGET: Final[Operation[Producer]] = _internal(
    name="register_producer_target",
    method="PUT",
    path=_REGISTRY + "/{group}/{name}",
    summary="Register a producer that can be called",
    description="By a coordinator, which has checked the address. Kept in memory until the lease "
    "ends.",
    parameters=_GROUP_AND_NAME,
    request=ProducerTarget,
    request_example=examples.TARGET,
    reply=Producer,
    text="Registered.",
    problems=(problems.GROUP_INVALID, *_OF_STORE),
)
REMOVE_TARGET: Final[Operation[Nothing]] = _internal(
    name="remove_target",
    method="DELETE",
    path=_REGISTRY + "/{group}/{name}",
    summary="Remove a producer",
    reply=Nothing,
    status=204,
    problems=(problems.PRODUCER_UNKNOWN, problems.GROUP_INVALID),
)
KNOWN_TARGETS: Final[Operation[Producers]] = _internal(
    name="producers",
    path=_REGISTRY,
    summary="Producers that can be called",
    reply=Producers,
)
