"""Checks of producers, and setting aside transactions that are not answered."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Final

import msgspec
from msgspec.structs import replace

from mqstore.storage.errors import PutRefused, TransactionGone, TransactionsNotLoaded
from mqstore.storage.log.commit_log import Placement
from mqstore.storage.transactions import halves
from mqstore.storage.transactions.decide import Decisions
from mqstore.storage.transactions.halves import Decision, Verdict
from mqstore.storage.transactions.ledger import Group, Ledger
from mqstore.storage.transactions.schedule import Rules
from mqstore.storage.transactions.table import Check, Transaction

RETRY_S: Final = 1.0
CARRIED_AT_ONCE: Final = 100


class CheckSent(msgspec.Struct, frozen=True, gc=False):
    """A check of a transaction that was sent to a producer."""

    key: str
    by: str
    """The producer."""
    answer: str | None
    """The producer's immediate answer, or None."""


class Checks:
    """Counts checks in further copies of the half messages."""

    def __init__(self, ledger: Ledger, decisions: Decisions, rules: Rules) -> None:
        self._ledger = ledger
        self._decisions = decisions
        self._rules = rules

    def lease(
        self, groups: Iterable[str] | None, count: int, seconds: float | None
    ) -> list[Transaction]:
        """See ``TransactionEngine.lease``."""
        schedule = self._ledger.schedule
        found = schedule.due(groups)[:count]
        for transaction in found:
            schedule.reschedule(transaction, seconds)
        return found

    def release(self, keys: Iterable[str]) -> None:
        """See ``TransactionEngine.release``."""
        for key in keys:
            transaction = self._ledger.state.pending.get(key)
            if transaction is not None:
                self._ledger.schedule.reschedule(transaction, 0)

    def count(self, checks: Iterable[CheckSent]) -> list[str]:
        """See ``TransactionEngine.count_checks``."""
        ledger = self._ledger
        sent = {each.key: each for each in checks}
        counted: list[str] = []

        def note(transaction: Transaction, at_ms: int) -> None:
            check = sent[transaction.key]
            transaction.note_check(Check(at_ms, check.by, check.answer))
            ledger.counts.checks_sent += 1
            ledger.schedule.reschedule(transaction)
            counted.append(transaction.key)

        pending = ledger.state.pending
        checked = [pending[key] for key in sent if key in pending]
        refused = ledger.append_apart(self._copy_groups(checked, 1, note))
        if refused and not counted:
            raise refused[0]
        return counted

    def carry(self) -> None:
        """Write again the half messages that hold the saved offsets back; rejected ones are retried
        later."""
        state = self._ledger.state
        behind = state.half_end - self._rules.carry_behind
        late = (
            each
            for each in state.pending.values()
            if min(half.queue_offset for half in each.halves) < behind
        )
        first = list(itertools.islice(late, CARRIED_AT_ONCE))
        self._ledger.append_apart(self._copy_groups(first, 0, lambda *_: None))

    def too_old(self) -> list[str]:
        """Keys of transactions whose half messages may soon be deleted."""
        ledger = self._ledger
        now_ms, steps = ledger.log.noted_time()
        before_ms = now_ms - ledger.log.reserved_ms
        return [
            each.key
            for each in ledger.state.pending.values()
            if each.born_ms + steps.shift_ms(each.first.physical_offset) <= before_ms
        ]

    def undecidable(self) -> list[str]:
        """Keys of transactions whose real topic is lost."""
        pending = self._ledger.state.pending.values()
        return [each.key for each in pending if not each.is_decidable]

    def set_aside(self, keys: Iterable[str]) -> None:
        """Set transactions aside; those that the store rejects or cannot read now are retried
        later.

        Raises StoreFailed, and TransactionsNotLoaded where the log has to be read again.
        """
        ledger = self._ledger
        for key in sorted(keys):
            transaction = ledger.state.pending[key]
            try:
                self._set_aside(transaction)
            except (PutRefused, TransactionsNotLoaded):
                if not ledger.is_loaded:
                    raise
                ledger.schedule.postpone(transaction, RETRY_S)

    def _set_aside(self, transaction: Transaction) -> None:
        ledger, group = self._ledger, self._decisions.group
        checked = transaction.check_times >= self._rules.check_max
        why = f"checked {transaction.check_times} times" if checked else "too old to be kept"
        if not transaction.is_decidable:
            why = halves.NO_TOPIC
        decision = Decision(Verdict.SET_ASIDE, ledger.clock.now_ms(), why)
        try:
            ledger.append([group(transaction, decision, transaction.parts.values())])
        except TransactionGone:
            lost = replace(decision, verdict=Verdict.ROLLBACK, why="its half message is gone")
            ledger.append([group(transaction, lost, ())])

    def _copy_groups(
        self,
        transactions: Iterable[Transaction],
        checks: int,
        then: Callable[[Transaction, int], None],
    ) -> Iterator[Group]:
        """Copies with the given number of further checks; lost transactions are skipped."""
        for transaction in transactions:
            with suppress(TransactionGone):
                yield self._copy_group(transaction, transaction.check_times + checks, then)

    def _copy_group(
        self, transaction: Transaction, times: int, then: Callable[[Transaction, int], None]
    ) -> Group:
        """Another copy of each of the transaction's halves, all together."""
        ledger = self._ledger
        records = [
            halves.checked_copy_of(ledger.content(transaction, part), part.newest, times)
            for part in transaction.parts.values()
        ]

        def note(placed: list[Placement]) -> None:
            ledger.note_halves(records, placed)
            then(transaction, placed[-1].store_timestamp_ms)

        return Group(records, note)
