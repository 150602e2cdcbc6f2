"""Begins and decides transactions of one message, each in one call of the kernel.

Records and memory are then as ``begin`` and ``decide`` leave them, which have to do what is left to
them here (None).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from mqstore.storage._kernel import BeginReader, BeginRequest, Placement, TransactionLane
from mqstore.storage.codec.hosts import Host
from mqstore.storage.codec.unique_keys import UniqueKeys
from mqstore.storage.layout import (
    HALF_TOPIC,
    PROPERTY_CHECK_IMMUNITY,
    PROPERTY_TRANSACTION_ID,
    StoreFormat,
)
from mqstore.storage.topic_names import property_rules
from mqstore.storage.transactions import halves
from mqstore.storage.transactions.begin import BeginResult
from mqstore.storage.transactions.decide import DecisionResult
from mqstore.storage.transactions.halves import Decision, Half, Verdict
from mqstore.storage.transactions.ledger import Ledger
from mqstore.storage.transactions.snapshot import State, snapshot_of
from mqstore.storage.transactions.table import Transaction

_WORDS: Final[dict[Verdict, Literal["commit", "rollback"]]] = {
    Verdict.COMMIT: "commit",
    Verdict.ROLLBACK: "rollback",
}


def begin_reader(keys: UniqueKeys) -> BeginReader:
    """Build a reader of begins in JSON; ``keys`` generates keys for messages without one.

    It leaves properties that a half message may have itself to the slow path.
    """
    own = PROPERTY_CHECK_IMMUNITY, PROPERTY_TRANSACTION_ID
    return BeginReader(property_rules((), StoreFormat.V5_X, refused=own), keys.generated)


class PlainTransactions:
    """Stores plain begins and decisions. One thread at a time."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._lane: TransactionLane = ledger.log.lane(ledger.keys)

    def begin(self, request: BeginRequest, queue_id: int, born_host: Host) -> BeginResult | None:
        """Begin a transaction whose key is new; None where that cannot be done in one call."""
        ledger, key, topic = self._ledger, request.key, request.topic
        state, log = ledger.state, ledger.log
        if request.has_key and (state.find(key) is not None or log.may_have(topic, [key])):
            return None
        began = ledger.clock.monotonic()
        placed = self._lane.begin(request, queue_id, state.half_end, born_host)
        if placed is None:
            return None
        ledger.note_half(_half_of(request, queue_id, placed))
        ledger.counts.begun += 1
        if request.has_key:
            log.remember(topic, [key], [placed])
        self._note([(HALF_TOPIC, placed.size)], began)
        return BeginResult(key, State.PENDING, placed.end)

    def decide(self, key: str, verdict: Verdict, why: str) -> DecisionResult | None:
        """Decide a pending transaction; None where that cannot be done in one call."""
        ledger = self._ledger
        state = ledger.state
        transaction = state.pending.get(key)
        half = None if transaction is None else _only_half(transaction)
        if transaction is None or half is None:
            return None
        began = ledger.clock.monotonic()
        offsets = half.physical_offset, half.record_size, half.queue_offset
        place = (half.topic, half.queue_id) if verdict is Verdict.COMMIT else None
        stored = self._lane.decide(key, offsets, place, state.op_end, _WORDS[verdict], why)
        if stored is None:
            return None
        placed, at_ms = stored
        decision = Decision(verdict, at_ms, why)
        ledger.note_op([half.queue_offset], placed[-1], decision)
        ledger.settle(transaction, decision)
        self._note([(half.topic, placed[0].size)] if place else (), began)
        return DecisionResult(snapshot_of(transaction), repeated=False, end=placed[-1].end)

    def _note(self, messages: Sequence[tuple[str, int]], began: float) -> None:
        self._ledger.note_append(messages, self._ledger.clock.monotonic() - began, 1)


def _half_of(request: BeginRequest, queue_id: int, placed: Placement) -> Half:
    """The half message as ``halves.read_half`` reads it from the log."""
    return Half(
        key=request.key,
        uniq_key=request.key,
        size=1,
        group=request.group,
        topic=request.topic,
        queue_id=queue_id,
        born_timestamp_ms=request.born_ms,
        store_timestamp_ms=placed.store_timestamp_ms,
        check_times=0,
        immunity_ms=None,
        queue_offset=placed.queue_offset,
        physical_offset=placed.physical_offset,
        record_size=placed.size,
        body_digest=halves.digest_body(request.body),
    )


def _only_half(transaction: Transaction) -> Half | None:
    """The half message of a transaction of one message, which no op record names; None where there
    are several messages or copies."""
    half = transaction.first
    part = transaction.parts.get(half.uniq_key)
    if part is None or len(transaction.parts) > 1 or len(part.copies) > 1 or half.size > 1:
        return None
    is_plain = half.key == half.uniq_key and half.is_decidable and not half.has_delay
    return half if is_plain and not transaction.resolved else None
