"""Transactions: begin and decision; and the checks of undecided ones by coordinators.

Times are milliseconds since the epoch.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import ConfigDict, Field

from mqstore.wire.base import Reply, Request, left_out
from mqstore.wire.examples import transactions as examples
from mqstore.wire.produce import Content

MESSAGES_MAX: Final = 100
"""Messages of a transaction, ..."""
KEYS_MAX: Final = 100
"""... keys of each, ..."""
PROPERTIES_MAX: Final = 100
"""... and properties."""
WHY_LENGTH_MAX: Final = 1_000
ID_LENGTH_MAX: Final = 300
ID_TEXT: Final = "As in the reply to begin; or `SHARD-` and the UNIQ_KEY of a broker's producer."
PRODUCER_NAME: Final = "[A-Za-z0-9._-]{1,100}"

TransactionState = Literal["pending", "committed", "rolled-back", "set-aside"]
Decision = Literal["commit", "rollback"]
LeaseSeconds = Annotated[int, Field(ge=10, le=3_600)]
WaitSeconds = Annotated[float, Field(ge=0, le=30, description="Seconds, until there is one.")]
Count = Annotated[int, Field(ge=1, le=100)]
Group = Annotated[str, Field(min_length=1, max_length=120)]


class _Strict(Request):
    model_config = ConfigDict(strict=True)


class NewHalf(Content, title="NewHalfMessage"):
    """A message that the commit makes visible. It has ``body`` or ``bodyBase64``, not empty."""

    keys: Annotated[list[str], Field(max_length=KEYS_MAX)] = []
    properties: Annotated[dict[str, str], Field(max_length=PROPERTIES_MAX)] = {}
    uniq_key: (
        Annotated[
            str,
            Field(
                min_length=1, max_length=255, pattern="^[^/]+$", description="Part of paths: no /."
            ),
        ]
        | None
    ) = None


class TransactionSpec(_Strict):
    """A transaction to begin."""

    producer_group: Group
    topic: str
    messages: Annotated[list[NewHalf], Field(min_length=1, max_length=MESSAGES_MAX)]
    check_immunity_seconds: (
        Annotated[int, Field(ge=0, le=86_400, description="Before the first check; default 6.")]
        | None
    ) = None
    shard: (
        Annotated[
            int,
            Field(
                ge=0,
                description="Default: the shard that the first message's `uniqKey` names; without "
                "a key any shard.",
            ),
        ]
        | None
    ) = None


class Reason(_Strict):
    """The reason of a decision, which is kept in the op record."""

    reason: Annotated[str, Field(max_length=WHY_LENGTH_MAX)] = ""


class Resolution(_Strict):
    """An operator's decision, also about a transaction that was set aside."""

    decision: Decision
    reason: Annotated[str, Field(min_length=1, max_length=WHY_LENGTH_MAX)]


class BegunTransaction(Reply, title="Begun"):
    """A transaction that was begun, now or by an earlier attempt."""

    transaction_id: str
    state: TransactionState


class Check(Reply, title="CheckView"):
    """A check that was sent: to a registered producer, or to one that polls (`poll`)."""

    at: int
    by: str
    answer: Annotated[str | None, Field(description="The immediate answer: a decision, or none.")]


class HalfCopy(Reply):
    """One copy of a half message: its place, and the number of its checks."""

    uniq_key: str
    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    store_timestamp: int
    check_times: int
    op_offset: Annotated[int | None, Field(description="Of the op record that resolves it.")]


class Transaction(Reply, title="TransactionView"):
    """A transaction with its history."""

    transaction_id: str
    shard: int
    state: TransactionState
    producer_group: str
    messages: int
    born_timestamp: int
    checks_sent: int
    checks: Annotated[
        tuple[Check, ...], Field(description="Sent since the store was opened, newest last.")
    ]
    decided_at: int | None
    why: str
    halves: tuple[HalfCopy, ...]


class Transactions(Reply, title="TransactionList"):
    """Transactions, oldest first."""

    transactions: tuple[Transaction, ...]
    next: Annotated[str | None, Field(description="The cursor to go on with.")]
    complete: Annotated[bool, Field(description="Whether every shard answered.")]
    missing: Annotated[tuple[int, ...], Field(description="Shards that did not.")]


class CheckTaking(_Strict):
    """A request of a producer for due checks of its group."""

    producer_group: Group
    max: Count = 16
    wait: WaitSeconds = 0


class Checks(Reply, title="Taken"):
    """Transactions that wait for their producer's answer."""

    transactions: tuple[Transaction, ...]


class Callback(_Strict):
    """The address at which a producer is called about undecided transactions of its group."""

    url: Annotated[str, Field(min_length=1, max_length=1_000)]
    secret: Annotated[str, Field(min_length=32, max_length=256, description="Signs the calls.")]
    lease_seconds: Annotated[
        LeaseSeconds, Field(description="Register again before they are over.")
    ] = 90

    model_config = ConfigDict(json_schema_extra={"example": examples.CALLBACK})


class Producer(Reply, title="ProducerView"):
    """A registered producer."""

    producer_group: str
    name: str
    url: str
    address: Annotated[str, Field(description="What is called, whatever the host resolves to.")]
    expires_in: Annotated[float, Field(description="Seconds.")]
    failures: Annotated[int, Field(description="Since it last answered.")]
    detail: Annotated[str | None, Field(description="Why the last call failed.")]


class Producers(Reply, title="ProducerList"):
    """Registered producers."""

    producers: tuple[Producer, ...]


class ProducerTarget(_Strict):
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
    secret: Annotated[str, Field(min_length=1, max_length=256)]
    lease_seconds: LeaseSeconds = 90


class CallableProducer(Reply):
    """A registered producer with all that is needed to call it."""

    name: str
    url: str
    address: str
    host: str
    secret: str


class LeaseChecks(_Strict):
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


class SentCheck(_Strict):
    """A check that reached its producer; ``answer`` None: no decision yet."""

    transaction_id: str
    by: str
    answer: str | None = None


class ProducerCall(_Strict):
    """The result of a call of a producer; ``failure`` None: it answered."""

    group: str
    name: str
    failure: str | None = None


class CheckReport(_Strict):
    """The results of leased checks. Those ``released`` are due again at once."""

    checks: list[SentCheck] = []
    released: list[str] = []
    producers: list[ProducerCall] = []


class CountedChecks(Reply):
    """Transaction ids of the checks that count as sent."""

    counted: tuple[str, ...]
