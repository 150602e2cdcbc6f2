"""Checks of half messages, and the producers that answer them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, Final

from pydantic import ConfigDict, Field

from mqstore.wire import problems
from mqstore.wire.base import ComponentRequest, Reply, StrictRequest, left_out
from mqstore.wire.examples import transactions as examples
from mqstore.wire.operation import Nothing, Operation, Role, Target, json_of
from mqstore.wire.parameters import ListParameters
from mqstore.wire.transactions import Group, Transaction

PRODUCER_NAME: Final = "[A-Za-z0-9._-]{1,100}"
SECRET_HEADER: Final = "x-mqstore-producer-secret"  # noqa: S105 (a name)
"""Header with the secret of a registration that is to be removed."""
SECRET_LENGTH_MAX: Final = 256
LeaseSeconds = Annotated[int, Field(ge=10, le=3_600)]
WaitSeconds = Annotated[float, Field(ge=0, le=30, description="Seconds, until there is one.")]
Count = Annotated[int, Field(ge=1, le=100)]


class CheckTaking(StrictRequest):
    """A request of a producer for due checks of its group."""

    producer_group: Group
    max: Count = 16
    wait: WaitSeconds = 0


class Checks(Reply, title="Taken"):
    """Transactions that wait for their producer's answer."""

    transactions: tuple[Transaction, ...]


class Callback(StrictRequest):
    """The address at which a producer is called about undecided transactions of its group."""

    url: Annotated[str, Field(min_length=1, max_length=1_000)]
    secret: Annotated[
        str,
        Field(
            min_length=32,
            max_length=SECRET_LENGTH_MAX,
            description="Signs the calls, and proves at renewals and removals whose they are.",
            repr=False,
        ),
    ]
    lease_seconds: Annotated[
        LeaseSeconds, Field(description="Register again before they are over.")
    ] = 90

    model_config = ConfigDict(json_schema_extra={"example": examples.CALLBACK})


class RegisteredProducer(Reply, title="ProducerView"):
    """A registered producer."""

    producer_group: str
    name: str
    url: str
    address: Annotated[str, Field(description="What is called, whatever the host resolves to.")]
    expires_in: Annotated[float, Field(description="Seconds.")]
    failures: Annotated[int, Field(description="Since it last answered.")]
    detail: Annotated[str | None, Field(description="Why the last call failed.")]


def producer_key(group: str, name: str) -> str:
    """The key that lists of producers are sorted by."""
    return f"{group}/{name}"


def producers_scope(group: str | None) -> str:
    """Identifies a list of producers in its cursors."""
    return f"producers of {group}"


class RegisteredProducers(Reply, title="ProducerList"):
    """A page of the registered producers, by group and name."""

    producers: tuple[RegisteredProducer, ...]
    next: Annotated[str | None, Field(description="The cursor to go on with.")] = None


class ProducerTarget(ComponentRequest, strict=True):
    """The address of a registered producer, as a shard keeps it for coordinators."""

    url: Annotated[str, Field(min_length=1, max_length=4_000)]
    address: Annotated[
        str,
        Field(
            min_length=1,
            max_length=100,
            description="What is called, whatever the host resolves to.",
        ),
    ]
    host: Annotated[
        str,
        Field(min_length=1, max_length=255, description="What the server's certificate must say."),
    ]
    secret: Annotated[str, Field(min_length=1, max_length=SECRET_LENGTH_MAX, repr=False)]
    lease_seconds: LeaseSeconds = 90
    client: (
        Annotated[
            str,
            Field(max_length=100, description="The address that registers it, which has a share."),
        ]
        | None
    ) = None


class CallableProducer(Reply):
    """A registered producer with all that is needed to call it."""

    name: str
    url: str
    address: str
    host: str
    secret: Annotated[str, Field(repr=False)]


class LeaseChecks(ComponentRequest, strict=True):
    """A request for due checks, which no other caller gets for ``lease_seconds``."""

    group: Annotated[str, Field(min_length=1, max_length=255)] | None = None
    registered: Annotated[
        bool, Field(description="Only of groups with a producer that can be called now.")
    ] = False
    max: Count = 16
    lease_seconds: Annotated[
        LeaseSeconds | None, Field(description="Default: the check interval.")
    ] = None
    by: (
        Annotated[str, Field(max_length=100, description="The checks count as sent by it.")] | None
    ) = None
    wait: WaitSeconds = 0


class LeasedCheck(Reply):
    """A due check, and the producers that can answer it."""

    transaction: Transaction
    producers: tuple[CallableProducer, ...] = left_out("Left out without any.", default=())


class LeasedChecks(Reply):
    """Due checks that are leased to the caller."""

    checks: tuple[LeasedCheck, ...]


class SentCheck(ComponentRequest, strict=True):
    """A check that reached its producer; ``answer`` None: no decision yet."""

    transaction_id: str
    by: str
    answer: str | None = None


class ProducerCall(ComponentRequest, strict=True):
    """The result of a call of a producer; ``failure`` None: it answered."""

    group: str
    name: str
    failure: str | None = None


class CheckReport(ComponentRequest, strict=True):
    """The results of leased checks. Those ``released`` are due again at once."""

    checks: list[SentCheck] = []
    released: list[str] = []
    producers: list[ProducerCall] = []


class CountedChecks(Reply):
    """Transaction ids of the checks that count as sent."""

    counted: tuple[str, ...]


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


class ProducersParameters(ListParameters):
    """A page of the registered producers."""

    group: Annotated[str | None, Field(max_length=255)] = None


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
    reply=RegisteredProducer,
    problems=(
        problems.CALLBACK_REFUSED,
        problems.PRODUCER_TAKEN,
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
    problems=(
        problems.PRODUCER_UNKNOWN,
        problems.PRODUCER_TAKEN,
        problems.GROUP_INVALID,
        *_NOT_READY,
    ),
)
PRODUCERS: Final = Operation(
    name="producers",
    targets=(Target.COORDINATOR,),
    path=_PRODUCERS,
    role=Role.ADMIN,
    summary="Registered producers",
    tag="checks",
    query=ProducersParameters,
    reply=RegisteredProducers,
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
REGISTER_TARGET: Final[Operation[RegisteredProducer]] = _internal(
    name="register_producer_target",
    method="PUT",
    path=_REGISTRY + "/{group}/{name}",
    summary="Register a producer that can be called",
    description="By a coordinator, which has checked the address. Kept in memory until the lease "
    "ends. 201 for one that was not registered.",
    parameters=_GROUP_AND_NAME,
    request=ProducerTarget,
    request_example=examples.TARGET,
    reply=RegisteredProducer,
    text="Renewed.",
    contents={201: ("Registered.", json_of(RegisteredProducer))},
    problems=(problems.PRODUCER_TAKEN, problems.GROUP_INVALID, *_OF_STORE),
)
REMOVE_TARGET: Final[Operation[Nothing]] = _internal(
    name="remove_target",
    method="DELETE",
    path=_REGISTRY + "/{group}/{name}",
    summary="Remove a producer",
    reply=Nothing,
    status=204,
    problems=(problems.PRODUCER_UNKNOWN, problems.PRODUCER_TAKEN, problems.GROUP_INVALID),
)
KNOWN_TARGETS: Final[Operation[RegisteredProducers]] = _internal(
    name="producers",
    path=_REGISTRY,
    summary="Producers that can be called",
    query=ProducersParameters,
    reply=RegisteredProducers,
)
