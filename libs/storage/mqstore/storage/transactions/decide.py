"""Decides transactions: stores the real messages, then the op record of the decision."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec
from msgspec.structs import replace

from mqstore.storage.errors import (
    FilePending,
    PutRefused,
    StorageError,
    StoreFailed,
    TransactionGone,
    TransactionUnknown,
)
from mqstore.storage.log.commit_log import Placement
from mqstore.storage.log_lines import bounded_log
from mqstore.storage.transactions import halves, loading
from mqstore.storage.transactions.halves import Decision, Verdict
from mqstore.storage.transactions.ledger import Group, Ledger, Plan
from mqstore.storage.transactions.loading import Unfinished
from mqstore.storage.transactions.records import NewRecord
from mqstore.storage.transactions.snapshot import TransactionSnapshot, snapshot_of
from mqstore.storage.transactions.table import Part, Transaction

_log = bounded_log(__name__)


class Decide(msgspec.Struct, frozen=True):
    """A decision to take: COMMIT or ROLLBACK."""

    key: str
    verdict: Verdict
    why: str
    by_hand: bool = False
    """Whether an operator decides, who may also decide a transaction that was set aside."""

    def reopens(self, transaction: Transaction) -> bool:
        """Whether an operator decides a transaction that was set aside."""
        decision = transaction.decision
        return self.by_hand and decision is not None and decision.verdict is Verdict.SET_ASIDE


class DecisionResult(msgspec.Struct, frozen=True):
    """A decided transaction, and whether it had been decided before."""

    snapshot: TransactionSnapshot
    repeated: bool
    end: int
    """Physical offset below which the log holds all of it."""


class Decisions:
    """Takes decisions, and completes those that a crash interrupted."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def plan(self, decisions: Sequence[Decide]) -> Plan[DecisionResult]:
        """See ``TransactionEngine.take``."""
        plan: Plan[DecisionResult] = Plan(
            [None] * len(decisions),
            {},
            lambda index: self._outcome(decisions[index], repeated=False),
            lambda index: self._outcome(decisions[index], repeated=True),
        )
        under_way: set[str] = set()
        for index, each in enumerate(decisions):
            try:
                transaction = self.find(each.key)
                if transaction.key in under_way:
                    continue  # a duplicate within this plan
                if transaction.decision is None or each.reopens(transaction):
                    plan.groups[index] = self._first_group(transaction, each)
                    under_way.add(transaction.key)
            except (StoreFailed, FilePending):
                raise
            except StorageError as error:
                plan.results[index] = error
        return plan

    def is_at_hand(self, decide: Decide) -> bool:
        """Whether the transaction can be decided without a read of the log."""
        found = self._ledger.state.find(decide.key)
        if found is None or decide.reopens(found):
            return False
        return not found.is_pending or self._ledger.has_content(found)

    def find(self, key: str) -> Transaction:
        """Find a transaction in memory or in the log. Raises TransactionUnknown."""
        found = self._ledger.state.find(key) or loading.find(self._ledger.log, key)
        if found is None:
            raise TransactionUnknown(f"there is no transaction {key}")
        return found

    def group(
        self, transaction: Transaction, decision: Decision, to_append: Iterable[Part]
    ) -> Group:
        """A decision's records; of a commit, the real messages of ``to_append`` first.

        Raises TransactionGone, TransactionsNotLoaded.
        """
        ledger, log = self._ledger, self._ledger.log
        records: list[NewRecord] = []
        if decision.verdict is Verdict.COMMIT and not transaction.is_decidable:
            raise TransactionGone(
                f"transaction {transaction.key} cannot be committed: {halves.NO_TOPIC}; roll it "
                "back, and send the message again"
            )
        if decision.verdict is not Verdict.ROLLBACK:
            for part in to_append:
                half = ledger.content(transaction, part)
                if decision.verdict is Verdict.SET_ASIDE:
                    records.append(halves.set_aside_of(half))
                else:
                    place, store_format = part.newest, log.format
                    records.append(halves.committed_of(half, place, store_format))
        offsets = ledger.state.to_resolve(transaction)
        ops = halves.ops_of(
            *(offsets, transaction.key, decision, log.host),
            *(ledger.keys.next(), log.format),
        )
        begin = len(records)

        def note(placed: list[Placement]) -> None:
            ledger.note_ops(ops, placed[begin:], decision)
            ledger.settle(transaction, decision)

        return Group(records + ops, note)

    def complete(self, unfinished: Iterable[Unfinished]) -> Iterator[Group]:
        """The missing records of interrupted decisions."""
        return (self._completion(*each) for each in unfinished)

    def _completion(
        self, transaction: Transaction, decision: Decision, missing: list[Part]
    ) -> Group:
        if decision.at_ms is None:
            decision = replace(decision, at_ms=self._ledger.clock.now_ms())
        try:
            return self.group(transaction, decision, missing)
        except TransactionGone as error:
            _log.error("a commit cannot be completed: %s", error)
            return self.group(transaction, decision, ())

    def _first_group(self, transaction: Transaction, decide: Decide) -> Group:
        decision = Decision(decide.verdict, self._ledger.clock.now_ms(), decide.why)
        parts = transaction.parts.values()
        if transaction.is_pending:  # a broker may have resolved some of its messages one by one
            parts_left = [part for part in parts if not transaction.is_resolved(part)]
            return self.group(transaction, decision, parts_left)
        return self.group(transaction, decision, parts)

    def _outcome(self, decide: Decide, *, repeated: bool) -> DecisionResult:
        """The result of a decision. Raises TransactionDecided."""
        transaction = self.find(decide.key)
        decision = transaction.decision
        if decision is None:
            raise PutRefused("the decision that this one repeats was refused")
        if decision.verdict is not decide.verdict:
            is_aside = decision.verdict is Verdict.SET_ASIDE
            advice = "resolve it by hand" if is_aside else ""
            raise transaction.contradiction_error(decision, advice, self._ledger.log.end_offset)
        return DecisionResult(snapshot_of(transaction), repeated, self._ledger.log.end_offset)
