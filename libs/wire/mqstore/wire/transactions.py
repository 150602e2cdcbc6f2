"""Transactions: begin, decide, look; and how coordinators check the undecided ones.

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
ID_TEXT: Final = "As begin answered it; also `SHARD-` and the UNIQ_KEY of a broker's producer."
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
    """A message to become visible at the commit. ``body`` or ``bodyBase64``, of a byte at least."""

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
    """Why a decision is taken; kept in the op record."""

    reason: Annotated[str, Field(max_length=WHY_LENGTH_MAX)] = ""


class Resolution(_Strict):
    """A person's decision, also of a transaction that was set aside."""

    decision: Decision
    reason: Annotated[str, Field(min_length=1, max_length=WHY_LENGTH_MAX)]


class BegunTransaction(Reply, title="Begun"):
    transaction_id: str
    state: TransactionState


class Check(Reply, title="CheckView"):
    """A check that was sent: to a registered producer, or to one that polls (`poll`)."""

    at: int
    by: str
    answer: Annotated[str | None, Field(description="What came at once: a decision, or none.")]


class HalfCopy(Reply):
    """One copy of a half message: where it stands, and after how many checks."""

    uniq_key: str
    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    store_timestamp: int
    check_times: int
    op_offset: Annotated[int | None, Field(description="Of the op record that resolves it.")]


class Transaction(Reply, title="TransactionView"):
    """A transaction and its whole story."""

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
    """Oldest first."""

    transactions: tuple[Transaction, ...]
    next: Annotated[str | None, Field(description="The cursor to go on with.")]
    complete: Annotated[bool, Field(description="Whether every shard answered.")]
    missing: Annotated[tuple[int, ...], Field(description="Shards that did not.")]


class CheckTaking(_Strict):
    """A producer that polls for checks of its group."""

    producer_group: Group
    max: Count = 16
    wait: WaitSeconds = 0


class Checks(Reply, title="Taken"):
    """Transactions that wait for their producer's answer."""

    transactions: tuple[Transaction, ...]


class Callback(_Strict):
    """Where a producer of a group is called about its undecided transactions."""

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
    producers: tuple[Producer, ...]


class ProducerTarget(_Strict):
    """Where a producer is called, as a shard keeps it for the coordinators."""

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
    checks: tuple[LeasedCheck, ...]


class SentCheck(_Strict):
    """A check that reached its producer; ``answer`` is its word, None: it gave none yet."""

    transaction_id: str
    by: str
    answer: str | None = None


class ProducerCall(_Strict):
    """How a call of a producer went; ``failure`` None: it answered."""

    group: str
    name: str
    failure: str | None = None


class CheckReport(_Strict):
    """What became of leased checks. ``released`` are due again at once."""

    checks: list[SentCheck] = []
    released: list[str] = []
    producers: list[ProducerCall] = []


class CountedChecks(Reply):
    """Transaction ids of the checks that count as sent."""

    counted: tuple[str, ...]
