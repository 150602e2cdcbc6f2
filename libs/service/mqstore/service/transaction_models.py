"""Requests and replies of transactions, of store-writer and of transaction-coordinator.

msgspec structs; pydantic models where FastAPI decodes them.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta
from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

MESSAGES_MAX: Final = 100
WHY_LENGTH_MAX: Final = 1_000
PROPERTIES_MAX: Final = 100
INT32_MAX: Final = 2**31 - 1
ID_LENGTH_MAX: Final = 300
ID_TEXT: Final = "As begin answered it; also `SHARD-` and the UNIQ_KEY of a broker's producer."
ID_EXAMPLE: Final = "0-AC1100021F9018B4AAC2A1B2C3D40000"


class State(StrEnum):
    PENDING = "pending"
    COMMITTED = "committed"
    ROLLED_BACK = "rolled-back"
    SET_ASIDE = "set-aside"


class _Answer(BaseModel):
    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, from_attributes=True, extra="forbid"
    )


class _Request(BaseModel):
    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="forbid", strict=True
    )


class NewMessage(msgspec.Struct, rename="camel", forbid_unknown_fields=True, gc=False):
    """A message to become visible at the commit. ``body`` or ``bodyBase64``, of a byte at least."""

    body: str | None = None
    body_base64: str | None = None
    tags: str | None = None
    keys: Annotated[list[str], Meta(max_length=100)] = []
    properties: Annotated[dict[str, str], Meta(max_length=PROPERTIES_MAX)] = {}
    queue_id: Annotated[int, Meta(ge=0, le=INT32_MAX)] | None = None
    flag: Annotated[int, Meta(ge=-INT32_MAX - 1, le=INT32_MAX)] = 0
    uniq_key: (
        Annotated[
            str,
            Meta(
                min_length=1,
                max_length=255,
                pattern="^[^/]+$",
                description="Part of paths: no /.",
            ),
        ]
        | None
    ) = None


class TransactionSpec(msgspec.Struct, rename="camel", forbid_unknown_fields=True, gc=False):
    """A transaction to begin."""

    producer_group: Annotated[str, Meta(min_length=1, max_length=120)]
    topic: str
    messages: Annotated[list[NewMessage], Meta(min_length=1, max_length=MESSAGES_MAX)]
    check_immunity_seconds: (
        Annotated[int, Meta(ge=0, le=86_400, description="Before the first check; default 6.")]
        | None
    ) = None
    shard: (
        Annotated[
            int,
            Meta(
                ge=0,
                description="Default: by the first `uniqKey`, else in turn where it can be.",
            ),
        ]
        | None
    ) = None


class Reason(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """Why a decision is taken; kept in the op record."""

    reason: Annotated[str, Meta(max_length=WHY_LENGTH_MAX)] = ""


class Resolution(_Request):
    """A person's decision, also of a transaction that was set aside."""

    decision: Annotated[str, Field(pattern="^(commit|rollback)$")]
    reason: Annotated[str, Field(min_length=1, max_length=WHY_LENGTH_MAX)]


class CheckTaking(_Request):
    """A producer that asks for checks of its group."""

    producer_group: Annotated[str, Field(min_length=1, max_length=120)]
    max: Annotated[int, Field(ge=1, le=100)] = 16
    wait: Annotated[float, Field(ge=0, le=30, description="Seconds, until there is one.")] = 0


class Begun(msgspec.Struct, rename="camel", gc=False):
    transaction_id: str
    state: State


class HalfCopy(msgspec.Struct, rename="camel", gc=False):
    """One copy of a half message: where it stands, and after how many checks."""

    uniq_key: str
    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    store_timestamp: int
    check_times: int
    op_offset: Annotated[int | None, Meta(description="Of the op record that resolves it.")]


class CheckView(msgspec.Struct, gc=False):
    """A check that was sent: to a registered producer, or to whoever asked for checks (`poll`)."""

    at: int
    by: str
    answer: Annotated[str | None, Meta(description="What came at once: a decision, or none.")]


class TransactionView(msgspec.Struct, rename="camel", gc=False):
    """A transaction and its whole story."""

    transaction_id: str
    shard: int
    state: State
    producer_group: str
    messages: int
    born_timestamp: int
    checks_sent: int
    checks: Annotated[
        list[CheckView], Meta(description="Sent since the store was opened, newest last.")
    ]
    decided_at: int | None
    why: str
    halves: list[HalfCopy]


class TransactionList(msgspec.Struct, gc=False):
    transactions: list[TransactionView]
    next: Annotated[str | None, Meta(description="The cursor to go on with.")]
    complete: Annotated[bool, Meta(description="Whether every shard could be asked.")]
    missing: Annotated[list[int], Meta(description="Shards that could not.")]


class Taken(msgspec.Struct, gc=False):
    """Transactions that wait for their producer's answer."""

    transactions: list[TransactionView]


class Callback(_Request):
    """Where a producer of a group is asked what it decided."""

    url: Annotated[str, Field(min_length=1, max_length=1_000)]
    secret: Annotated[str, Field(min_length=32, max_length=256, description="Signs the questions.")]
    lease_seconds: Annotated[
        int, Field(ge=10, le=3_600, description="Register again before they are over.")
    ] = 90

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "url": "https://billing.example.org/checks",
                "secret": "the output of openssl rand -hex 32",
            }
        }
    )


class ProducerView(_Answer):
    producer_group: str
    name: str
    url: str
    address: Annotated[str, Field(description="What is called, whatever the host resolves to.")]
    expires_in: Annotated[float, Field(description="Seconds.")]
    failures: Annotated[int, Field(description="Since it last answered.")]
    detail: Annotated[str | None, Field(description="Why the last call failed.")]


class ProducerList(_Answer):
    producers: list[ProducerView]


class ProducerTarget(msgspec.Struct, rename="camel", forbid_unknown_fields=True, gc=False):
    """Where a producer is called, as a shard keeps it for the coordinators."""

    url: Annotated[str, Meta(min_length=1, max_length=4_000)]
    address: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=100,
            description="What is called, whatever the host resolves to.",
        ),
    ]
    host: Annotated[
        str,
        Meta(min_length=1, max_length=255, description="What the server's certificate must say."),
    ]
    secret: Annotated[str, Meta(min_length=1, max_length=256)]
    lease_seconds: Annotated[int, Meta(ge=10, le=3_600)] = 90


class CallableProducer(msgspec.Struct, rename="camel", gc=False):
    """A registered producer with all that is needed to call it."""

    name: str
    url: str
    address: str
    host: str
    secret: str


class LeaseChecks(msgspec.Struct, rename="camel", forbid_unknown_fields=True, gc=False):
    """A request for due checks, which no other caller gets for ``lease_seconds``."""

    group: Annotated[str, Meta(min_length=1, max_length=255)] | None = None
    registered: Annotated[
        bool, Meta(description="Only of groups with a producer that can be called now.")
    ] = False
    max: Annotated[int, Meta(ge=1, le=100)] = 16
    lease_seconds: (
        Annotated[int, Meta(ge=10, le=3_600, description="Default: the check interval.")] | None
    ) = None
    by: (
        Annotated[str, Meta(max_length=100, description="The checks count as sent by it.")] | None
    ) = None
    wait: Annotated[float, Meta(ge=0, le=30, description="Seconds, until there is one.")] = 0


class LeasedCheck(msgspec.Struct, gc=False):
    """A due check, and the producers that can answer it."""

    transaction: TransactionView
    producers: list[CallableProducer] = []


class LeasedChecks(msgspec.Struct, gc=False):
    checks: list[LeasedCheck]


class SentCheck(msgspec.Struct, rename="camel", forbid_unknown_fields=True, gc=False):
    """A check that reached its producer; ``answer`` is its word, None: it gave none yet."""

    transaction_id: str
    by: str
    answer: str | None = None


class ProducerCall(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """How a call of a producer went; ``failure`` None: it answered."""

    group: str
    name: str
    failure: str | None = None


class CheckReport(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """What became of leased checks. ``released`` are due again at once."""

    checks: list[SentCheck] = []
    released: list[str] = []
    producers: list[ProducerCall] = []


class CountedChecks(msgspec.Struct, gc=False):
    """Transaction ids of the checks that count as sent."""

    counted: list[str]


SPEC_EXAMPLE: Final[dict[str, Any]] = {
    "producerGroup": "billing",
    "topic": "orders",
    "messages": [{"body": "order 1 was paid", "keys": ["order-1"]}],
}
BEGUN_EXAMPLE: Final[dict[str, Any]] = {
    "transactionId": ID_EXAMPLE,
    "state": "pending",
}
ID_PARAMETER: Final[dict[str, Any]] = {
    "name": "id",
    "in": "path",
    "required": True,
    "description": ID_TEXT,
    "schema": {"type": "string", "maxLength": ID_LENGTH_MAX},
    "examples": {"one": {"value": ID_EXAMPLE}},
}
