"""Transactions as the API shows them, and their order in lists."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from mqstore.service.transaction_lists import place_at
from mqstore.service.transaction_structs import Check, HalfCopy, Transaction
from mqstore.storage import transactions as engine
from mqstore.storage.transactions import TransactionEngine, TransactionSnapshot
from mqstore.wire.transactions import TransactionState

STATES: Final[Mapping[engine.State, TransactionState]] = {
    engine.State.PENDING: "pending",
    engine.State.COMMITTED: "committed",
    engine.State.ROLLED_BACK: "rolled-back",
    engine.State.SET_ASIDE: "set-aside",
}
_UNDECIDED: Final = frozenset({engine.State.PENDING, engine.State.SET_ASIDE})


@dataclass(frozen=True, slots=True)
class Listing:
    """The transactions that a client lists. ``state`` None: those that await a decision."""

    state: TransactionState | None
    group: str | None
    older_than_ms: int
    after: str
    """A place in the list, or an empty text for its beginning."""
    limit: int

    def of(self, shard: int, transactions: TransactionEngine) -> list[Transaction]:
        """Transactions of a shard, oldest first, behind ``after``. Raises TransactionsNotLoaded."""
        wanted = _UNDECIDED if self.state is None else {engine.State(self.state)}
        before_ms = time.time_ns() // 1_000_000 - self.older_than_ms
        snapshots = transactions.snapshots(
            wanted,
            self.group,
            before_ms,
            follows=lambda born_ms, key: place_at(born_ms, shard, key) > self.after,
            limit=self.limit,
        )
        return [view(shard, each) for each in snapshots]


def view(shard: int, snapshot: TransactionSnapshot) -> Transaction:
    """All that is known of a transaction."""
    return Transaction(
        transaction_id=f"{shard}-{snapshot.key}",
        shard=shard,
        state=STATES[snapshot.state],
        producer_group=snapshot.group,
        messages=snapshot.messages,
        born_timestamp=snapshot.born_ms,
        checks_sent=snapshot.check_times,
        checks=tuple(
            [Check(at=check.at_ms, by=check.by, answer=check.answer) for check in snapshot.checks]
        ),
        decided_at=snapshot.decided_at_ms,
        why=snapshot.why,
        halves=tuple(
            [
                HalfCopy(
                    uniq_key=half.uniq_key,
                    topic=half.topic,
                    queue_id=half.queue_id,
                    queue_offset=half.queue_offset,
                    physical_offset=half.physical_offset,
                    store_timestamp=half.store_ms,
                    check_times=half.check_times,
                    op_offset=half.op_offset,
                )
                for half in snapshot.halves
            ]
        ),
    )
