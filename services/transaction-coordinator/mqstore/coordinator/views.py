"""Transactions as the API shows them, and their order in lists."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from mqstore.coordinator.coordinator import Coordinator
from mqstore.coordinator.halves import Verdict
from mqstore.coordinator.models import CheckView, HalfCopy, State, TransactionView
from mqstore.coordinator.transactions import Transaction

_STATES: Final = {
    None: State.PENDING,
    Verdict.COMMIT: State.COMMITTED,
    Verdict.ROLLBACK: State.ROLLED_BACK,
    Verdict.SET_ASIDE: State.SET_ASIDE,
}
_UNDECIDED: Final = frozenset({State.PENDING, State.SET_ASIDE})


@dataclass(frozen=True, slots=True)
class Listing:
    """Which transactions are asked for. ``state`` None: those that somebody may have to decide."""

    state: State | None
    group: str | None
    older_than_ms: int
    after: str
    """A place in the list, or an empty text for its beginning."""
    limit: int

    def of(self, shard: int, coordinator: Coordinator) -> list[TransactionView]:
        """Those of one shard, oldest first, behind ``after``. Raises NotLoaded."""
        found = sorted(self._fitting(shard, coordinator), key=lambda each: _place(shard, each))
        return [view(shard, each) for each in found[: self.limit]]

    def _fitting(self, shard: int, coordinator: Coordinator) -> Iterator[Transaction]:
        wanted = _UNDECIDED if self.state is None else {self.state}
        before_ms = time.time_ns() // 1_000_000 - self.older_than_ms
        known = coordinator.state
        for table in (known.pending, known.set_aside, known.history):
            for each in table.values():
                if (
                    state_of(each) in wanted
                    and self.group in (None, each.group)
                    and each.born_ms <= before_ms
                    and _place(shard, each) > self.after
                ):
                    yield each


def state_of(found: Transaction) -> State:
    return _STATES[None if found.decision is None else found.decision.verdict]


def place_of(shown: TransactionView) -> str:
    """Where it stands in lists: by age, over all shards."""
    shard, _, key = shown.transaction_id.partition("-")
    return _place_at(shown.born_timestamp, int(shard), key)


def _place(shard: int, found: Transaction) -> str:
    return _place_at(found.born_ms, shard, found.key)


def _place_at(born_ms: int, shard: int, key: str) -> str:
    return f"{born_ms:015d}.{shard:05d}.{key}"


def view(shard: int, found: Transaction) -> TransactionView:
    """All that is known of a transaction."""
    decision = found.decision
    return TransactionView(
        transaction_id=f"{shard}-{found.key}",
        shard=shard,
        state=state_of(found),
        producer_group=found.group,
        messages=len(found.parts),
        born_timestamp=found.born_ms,
        checks_sent=found.check_times,
        checks=[
            CheckView(at=check.at_ms, by=check.by, answer=check.answer) for check in found.checks
        ],
        decided_at=None if decision is None else decision.at_ms,
        why="" if decision is None else decision.why,
        halves=[
            HalfCopy(
                uniq_key=copy.uniq_key,
                topic=copy.topic,
                queue_id=copy.queue_id,
                queue_offset=copy.queue_offset,
                physical_offset=copy.physical_offset,
                store_timestamp=copy.store_timestamp_ms,
                check_times=copy.check_times,
                op_offset=found.resolved.get(copy.queue_offset),
            )
            for copy in found.copies
        ],
    )
