"""What the transaction coordinator answers. Times are ms since the epoch."""

from __future__ import annotations

from typing import Literal

from mqstore.client.models import Model

TransactionState = Literal["pending", "committed", "rolled-back", "set-aside"]


class Begun(Model):
    transaction_id: str
    state: TransactionState


class Check(Model):
    """A check that was sent since the store was opened; ``answer`` is what came back at once."""

    at: int
    by: str
    answer: str | None


class HalfCopy(Model):
    """One copy of a half message; ``op_offset`` is the op record's that resolves it."""

    uniq_key: str
    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    store_timestamp: int
    check_times: int
    op_offset: int | None


class Transaction(Model):
    """A transaction and its whole story."""

    transaction_id: str
    shard: int
    state: TransactionState
    producer_group: str
    messages: int
    born_timestamp: int
    checks_sent: int
    checks: tuple[Check, ...]
    decided_at: int | None
    why: str
    halves: tuple[HalfCopy, ...]


class Transactions(Model):
    """``missing`` are the shards that could not be asked."""

    transactions: tuple[Transaction, ...]
    next: str | None
    complete: bool
    missing: tuple[int, ...]


class Checks(Model):
    transactions: tuple[Transaction, ...]


class Producer(Model):
    """A registered callback; ``expires_in`` is seconds."""

    producer_group: str
    name: str
    url: str
    address: str
    expires_in: float
    failures: int
    detail: str | None


class Producers(Model):
    producers: tuple[Producer, ...]
