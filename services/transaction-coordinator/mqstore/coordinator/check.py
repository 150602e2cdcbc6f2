"""Checks: producers that went silent are asked; what nobody answers for is set aside."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Final

from msgspec.structs import replace

from mqstore.coordinator import halves
from mqstore.coordinator.decide import Decisions
from mqstore.coordinator.errors import LogRefused, TransactionGone
from mqstore.coordinator.halves import Decision, Verdict
from mqstore.coordinator.ledger import Group, Ledger
from mqstore.coordinator.records import Placement
from mqstore.coordinator.schedule import Rules
from mqstore.coordinator.transactions import Check, Transaction

RETRY_S: Final = 1.0
CARRIED_AT_ONCE: Final = 100


class Checks:
    """Notes who was asked, in further copies of the half messages."""

    def __init__(self, ledger: Ledger, decisions: Decisions, rules: Rules) -> None:
        self._ledger = ledger
        self._decisions = decisions
        self._rules = rules

    def sending(self, keys: Iterable[str]) -> None:
        """See ``Coordinator.sending``."""
        for key in keys:
            transaction = self._ledger.state.pending.get(key)
            if transaction is not None:
                self._ledger.schedule.again(transaction)

    def unsent(self, keys: Iterable[str]) -> None:
        """See ``Coordinator.unsent``."""
        for key in keys:
            transaction = self._ledger.state.pending.get(key)
            if transaction is not None:
                self._ledger.schedule.later(transaction, 0)

    def sent(self, keys: Iterable[str], by: str, answer: str | None) -> list[str]:
        """See ``Coordinator.sent``."""
        ledger = self._ledger
        counted: list[str] = []

        def note(transaction: Transaction, at_ms: int) -> None:
            transaction.checked(Check(at_ms, by, answer))
            ledger.counts.checks_sent += 1
            ledger.schedule.again(transaction)
            counted.append(transaction.key)

        pending = ledger.state.pending
        asked = [pending[key] for key in keys if key in pending]
        refused = ledger.append_apart(self._copy_groups(asked, 1, note))
        if refused and not counted:
            raise refused[0]
        return counted

    def carry(self) -> None:
        """Write the half messages again that hold the saved offsets back; what the store refuses
        now is tried again."""
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
        """Keys of those whose half messages may soon be deleted."""
        before_ms = self._ledger.clock.now_ms() - self._ledger.standing.reserved_ms
        pending = self._ledger.state.pending
        return [each.key for each in pending.values() if each.born_ms <= before_ms]

    def set_aside(self, keys: Iterable[str]) -> None:
        """Raises LogUnavailable; what the store refuses now is tried again."""
        ledger, group = self._ledger, self._decisions.group
        for key in sorted(keys):
            transaction = ledger.state.pending[key]
            checked = transaction.check_times >= self._rules.check_max
            why = f"checked {transaction.check_times} times" if checked else "too old to be kept"
            decision = Decision(Verdict.SET_ASIDE, ledger.clock.now_ms(), why)
            try:
                ledger.append([group(transaction, decision, transaction.parts.values())])
            except TransactionGone:
                lost = replace(decision, verdict=Verdict.ROLLBACK, why="its half message is gone")
                ledger.append([group(transaction, lost, ())])
            except LogRefused:
                ledger.schedule.later(transaction, RETRY_S)

    def _copy_groups(
        self,
        transactions: Iterable[Transaction],
        checks: int,
        then: Callable[[Transaction, int], None],
    ) -> Iterator[Group]:
        """With so many more checks; what is gone is passed over."""
        for transaction in transactions:
            with suppress(TransactionGone):
                yield self._copy_group(transaction, transaction.check_times + checks, then)

    def _copy_group(
        self, transaction: Transaction, times: int, then: Callable[[Transaction, int], None]
    ) -> Group:
        """Another copy of each of its halves, all together."""
        ledger = self._ledger
        records = [
            halves.checked_copy_of(ledger.content(transaction, part), part.newest, times)
            for part in transaction.parts.values()
        ]

        def note(placed: list[Placement]) -> None:
            ledger.note_halves(records, placed)
            then(transaction, placed[-1].store_timestamp_ms)

        return Group(records, note)
