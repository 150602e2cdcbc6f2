"""Reads transactions back from a log, and finds interrupted begins and decisions.

As a broker does, it reads half messages and op records from the offsets of group CID_RMQ_SYS_TRANS
on. Besides, each pending transaction is searched among the committed messages: a broker stores the
real message first and its op record later (5.x: up to seconds later), and of a group of ours that a
crash interrupted, only the real messages may exist.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from mqstore.storage.errors import TransactionsNotLoaded
from mqstore.storage.layout import (
    CHECK_MAX_TIME_TOPIC,
    HALF_TOPIC,
    KEY_SEPARATOR,
    OP_TOPIC,
    PROPERTY_UNIQ_KEY,
    TRANSACTION_MASK,
    SysFlag,
)
from mqstore.storage.log_lines import bounded_log
from mqstore.storage.transactions import halves
from mqstore.storage.transactions.halves import Decision, Half, Verdict
from mqstore.storage.transactions.log import Kinds, QueueOffsets, TransactionLog
from mqstore.storage.transactions.records import Key, LogRecord
from mqstore.storage.transactions.table import Part, Resolution, Transaction, TransactionTable

PAGE: Final = 200
"""Records of one read. A begin has fewer messages, so they stand within as many of one another."""
SET_ASIDE_MAX: Final = 1_000
"""Maximum number of listed transactions that were set aside, the newest."""
CUT_COMMIT: Final = "a crash cut the commit short"
CUT_BEGIN: Final = "a crash cut the begin short"

Unfinished = tuple[Transaction, Decision, list[Part]]
"""A transaction, its decision, and its missing messages."""

_log = bounded_log(__name__)


def read_back(log: TransactionLog, saved: QueueOffsets) -> TransactionTable:
    """Read all transactions from the saved offsets on, and settle those with op records.

    Raises TransactionsNotLoaded.
    """
    half_from, half_end = _bounds(log, HALF_TOPIC, saved)
    op_from, op_end = _bounds(log, OP_TOPIC, saved)
    state = TransactionTable(half_from, op_from)
    for found in _records(log, OP_TOPIC, op_from, op_end):
        decision = halves.read_decision(found)
        resolution = Resolution(found.queue_offset, found.physical_offset, decision)
        state.add_op(resolution, halves.read_op(found))
    for found in _records(log, HALF_TOPIC, half_from, half_end):
        half = halves.read_half(found)
        if half is not None:
            state.add_half(half)
        elif not halves.is_filler(found):
            _log.error("half message %d cannot be committed", found.queue_offset)
    state.half_end, state.op_end = half_end, op_end
    for transaction in list(state.pending.values()):
        if all(transaction.is_resolved(part) for part in transaction.parts.values()):
            state.settle(transaction, transaction.decision or _infer_decision(log, transaction))
    return state


def find_unfinished(
    log: TransactionLog, state: TransactionTable
) -> Iterator[tuple[Transaction, Decision, list[Part]]]:
    """Pending transactions that were decided: the decision, and the missing messages."""
    pending = list(state.pending.values())
    kinds = log.kinds([key for each in pending for key in _keys_of_copies(each)])
    for transaction in pending:
        parts = list(transaction.parts.values())
        known, transaction.decision = transaction.decision, None
        # Without a decision of ours, a broker resolved some messages one by one.
        left = [part for part in parts if known or not transaction.is_resolved(part)]
        verdict = None if known is None else known.verdict
        aside = [part for part in parts if _is_kept(kinds, part)]
        done = [part for part in parts if _is_committed(kinds, part)]
        if done or verdict is Verdict.COMMIT:
            missing = [part for part in left if part not in done]
            yield transaction, known or _cut_decision(Verdict.COMMIT, CUT_COMMIT), missing
        elif aside or verdict is Verdict.SET_ASIDE:
            why = "a crash cut it short when it was set aside"
            missing = [part for part in left if part not in aside]
            yield transaction, known or _cut_decision(Verdict.SET_ASIDE, why), missing
        elif verdict is Verdict.ROLLBACK:
            assert known is not None
            yield transaction, known, []
        elif not transaction.is_whole:
            yield transaction, _cut_decision(Verdict.ROLLBACK, CUT_BEGIN), []


def find_torn(
    log: TransactionLog, state: TransactionTable
) -> Iterator[tuple[Transaction, Decision, list[Part]]]:
    """Decided transactions with missing messages: a power cut may remove any part of the log that
    was not on disk, including real messages before their op record."""
    decided = [
        (transaction, transaction.decision)
        for transaction in [*state.history.values(), *state.set_aside.values()]
        if transaction.decision is not None and transaction.decision.verdict is not Verdict.ROLLBACK
    ]
    kinds = log.kinds([key for each, _ in decided for key in _keys_of_copies(each)])
    for transaction, decision in decided:
        is_there = _is_committed if decision.verdict is Verdict.COMMIT else _is_kept
        missing = [part for part in transaction.parts.values() if not is_there(kinds, part)]
        if missing:
            yield transaction, decision, missing


def _keys_of_copies(transaction: Transaction) -> Iterator[Key]:
    """The keys of its messages' copies once they were committed, or set aside."""
    for part in transaction.parts.values():
        yield Key(part.newest.topic, part.newest.uniq_key)
        yield Key(CHECK_MAX_TIME_TOPIC, part.newest.uniq_key)


def _is_committed(kinds: Kinds, part: Part) -> bool:
    found = kinds.get(Key(part.newest.topic, part.newest.uniq_key), ())
    return SysFlag.TRANSACTION_COMMIT in found


def _is_kept(kinds: Kinds, part: Part) -> bool:
    return Key(CHECK_MAX_TIME_TOPIC, part.newest.uniq_key) in kinds


def find(log: TransactionLog, key: str) -> Transaction | None:
    """Find a transaction that is not in memory by the log's index; None when there is none.

    Raises TransactionsNotLoaded.
    """
    found = [half for half in map(halves.read_half, _by_key(log, HALF_TOPIC, key)) if half]
    own = [half for half in found if half.key == key]
    if not own:
        return None
    transaction = Transaction(key, own[0])
    for half in own:
        transaction.add(half)
        if half.size > 1:
            _add_neighbours(log, transaction, half)
    first = min(half.physical_offset for half in own)
    ops = [op for op in _by_key(log, OP_TOPIC, key) if op.physical_offset > first]
    for op in ops:
        transaction.resolved |= dict.fromkeys(halves.read_op(op), op.queue_offset)
    decisions = [decision for op in ops if (decision := halves.read_decision(op)) is not None]
    transaction.decision = decisions[0] if decisions else _infer_decision(log, transaction)
    return transaction


def find_committed_copy(log: TransactionLog, half: Half) -> LogRecord | None:
    """The real message of a committed half message, or None. Raises TransactionsNotLoaded."""
    return find_committed(log, half.topic, half.uniq_key)


def find_committed(
    log: TransactionLog, topic: str, uniq_key: str, at_least: int = 0
) -> LogRecord | None:
    """The committed message of a topic with a unique key, at a physical offset from ``at_least``
    on, or None. Raises TransactionsNotLoaded."""
    for found in _by_key(log, topic, uniq_key):
        kind = found.record.sys_flag & TRANSACTION_MASK
        is_its_own = found.record.properties.get(PROPERTY_UNIQ_KEY) == uniq_key
        is_there = found.physical_offset >= at_least
        if kind == SysFlag.TRANSACTION_COMMIT and is_its_own and is_there:
            return found
    return None


def find_set_aside_copy(log: TransactionLog, half: Half) -> LogRecord | None:
    """The copy of a half message in TRANS_CHECK_MAX_TIME_TOPIC, or None."""
    for found in _by_key(log, CHECK_MAX_TIME_TOPIC, half.uniq_key):
        if found.record.properties.get(PROPERTY_UNIQ_KEY) == half.uniq_key:
            return found
    return None


def _cut_decision(verdict: Verdict, why: str) -> Decision:
    return Decision(verdict, None, why)


def _infer_decision(log: TransactionLog, transaction: Transaction) -> Decision:
    """The decision of a broker, whose op records do not state it, from the copies in the log."""
    copy = next(
        (found for half in transaction.halves if (found := find_committed_copy(log, half))), None
    )
    if copy is not None:
        return Decision(Verdict.COMMIT, copy.store_timestamp_ms, "")
    if any(find_set_aside_copy(log, half) is not None for half in transaction.halves):
        return Decision(Verdict.SET_ASIDE, None, "")
    return Decision(Verdict.ROLLBACK, None, "")


def read_set_aside(log: TransactionLog, state: TransactionTable) -> None:
    """Read the newest messages of TRANS_CHECK_MAX_TIME_TOPIC that were not resolved since."""
    end = log.read(CHECK_MAX_TIME_TOPIC, halves.QUEUE, 0, 1).max_offset
    for found in _records(log, CHECK_MAX_TIME_TOPIC, max(0, end - SET_ASIDE_MAX), end):
        half = halves.read_half(found)
        if half is None or state.find(half.key) is not None:
            continue
        known = find(log, half.key)
        decision = None if known is None else known.decision
        if known is not None and decision is not None and decision.verdict is Verdict.SET_ASIDE:
            state.settle(known, decision)


def _add_neighbours(log: TransactionLog, transaction: Transaction, half: Half) -> None:
    """Add the other messages of a transaction, which stand beside the one that its key finds."""
    size = min(half.size, PAGE)
    begin = max(0, half.queue_offset - size)
    page = log.read(HALF_TOPIC, halves.QUEUE, begin, 2 * size + 1)
    for found in page.records:
        other = halves.read_half(found)
        if other is not None and other.key == transaction.key:
            transaction.add(other)


def _by_key(log: TransactionLog, topic: str, key: str) -> list[LogRecord]:
    """Records of a topic under a key.

    Raises TransactionsNotLoaded while the index does not cover the log.
    """
    if not key or KEY_SEPARATOR in key:
        return []
    found = log.by_key(topic, key)
    if not found.complete:
        raise TransactionsNotLoaded("the store's index is being rebuilt; transactions wait for it")
    return found.records


def _bounds(log: TransactionLog, topic: str, saved: QueueOffsets) -> tuple[int, int]:
    """The range of a queue to read; saved offsets may be out of its bounds."""
    bounds = log.read(topic, halves.QUEUE, 0, 1)
    begin = saved.get((topic, halves.QUEUE), bounds.min_offset)
    return min(max(begin, bounds.min_offset), bounds.max_offset), bounds.max_offset


def _records(log: TransactionLog, topic: str, begin: int, end: int) -> Iterator[LogRecord]:
    while begin < end:
        page = log.read(topic, halves.QUEUE, begin, PAGE)
        yield from page.records
        if page.next_offset <= begin:
            return
        begin = page.next_offset
