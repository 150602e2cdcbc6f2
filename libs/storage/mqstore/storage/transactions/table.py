"""The transactions in memory: the content of the half and op queues that is still needed.

All of it is read back from the log. Used by one thread. There may be many transactions, so all are
structs and tuples without cycles, which the garbage collector need not examine.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from mqstore.storage.errors import TransactionDecided
from mqstore.storage.layout import HALF_TOPIC, OP_TOPIC
from mqstore.storage.transactions.halves import Decision, Half, Verdict

HISTORY_MAX: Final = 50_000
"""Maximum number of decided transactions in memory; older ones are found in the log by their
key."""

CHECKS_KEPT: Final = 32
COPIES_USUAL: Final = 64
"""Copies of a half message, of which a check writes one: more than transactionCheckMax."""
_WORDS: Final = {
    Verdict.COMMIT: "committed",
    Verdict.ROLLBACK: "rolled back",
    Verdict.SET_ASIDE: "set aside",
}


class Check(msgspec.Struct, frozen=True, gc=False):
    """A check that was sent, and the immediate answer to it."""

    at_ms: int
    by: str
    """The producer, or the callback address, that was checked."""
    answer: str | None


class Resolution(msgspec.Struct, frozen=True, gc=False):
    """An op record: its offsets, and its decision (a broker's: None)."""

    op_offset: int
    """Queue offset of the op record."""
    physical_offset: int
    decision: Decision | None


class Part(msgspec.Struct, gc=False):
    """One message of a transaction: the copies of its half message, ascending."""

    copies: Sequence[Half]
    """A tuple, and a list of those that have very many: a store may have any number."""

    @property
    def newest(self) -> Half:
        """The newest copy."""
        return self.copies[-1]

    def add(self, half: Half) -> None:
        """Add a copy in its order; adding it twice has no effect."""
        copies = self.copies
        if half.queue_offset > copies[-1].queue_offset:
            if isinstance(copies, list):
                copies.append(half)
            else:
                self.copies = (*copies, half) if len(copies) < COPIES_USUAL else [*copies, half]
            return
        at = bisect_left(copies, half.queue_offset, key=lambda copy: copy.queue_offset)
        if copies[at].queue_offset != half.queue_offset:
            self.copies = (*copies[:at], half, *copies[at:])


class Transaction(msgspec.Struct, gc=False):
    """All halves under one key, and the decision about them."""

    key: str
    first: Half
    """The oldest copy."""
    parts: dict[str, Part] = {}
    """By UNIQ_KEY."""
    resolved: dict[int, int] = {}
    """Queue offsets of halves that an op record names, and the op record's own."""
    decision: Decision | None = None
    due_at: float = math.inf
    """Monotonic time of the next check."""
    checks: tuple[Check, ...] = ()
    """The latest checks that this process sent; the half messages count the earlier ones."""

    def add(self, half: Half) -> None:
        """Add a copy of a half message."""
        if half.queue_offset < self.first.queue_offset:
            self.first = half
        part = self.parts.get(half.uniq_key)
        if part is None:
            self.parts[half.uniq_key] = Part((half,))
        else:
            part.add(half)

    def note_check(self, check: Check) -> None:
        """Note a check that was sent."""
        self.checks = (*self.checks, check)[-CHECKS_KEPT:]

    def resolve(self, half_offset: int, resolution: Resolution) -> None:
        """Note an op record of a half; an operator's later decision overrides setting it aside."""
        self.resolved[half_offset] = resolution.op_offset
        known, decision = self.decision, resolution.decision
        if known is None or (decision is not None and known.verdict is Verdict.SET_ASIDE):
            self.decision = decision

    @property
    def halves(self) -> list[Half]:
        """The newest copy of each message's half."""
        return [part.newest for part in self.parts.values()]

    @property
    def copies(self) -> Iterator[Half]:
        """All copies of all halves."""
        return (copy for part in self.parts.values() for copy in part.copies)

    @property
    def group(self) -> str:
        """The producer group."""
        return self.first.group

    @property
    def born_ms(self) -> int:
        """Begin time in Unix milliseconds."""
        return self.first.born_timestamp_ms

    @property
    def check_times(self) -> int:
        """Number of checks."""
        return max([part.newest.check_times for part in self.parts.values()])

    @property
    def is_whole(self) -> bool:
        """Whether every message of the transaction has a half."""
        return len(self.parts) >= max(half.size for half in self.halves)

    @property
    def is_pending(self) -> bool:
        """Whether the transaction has no decision."""
        return self.decision is None

    @property
    def is_decidable(self) -> bool:
        """Whether the real topic of every message is known."""
        return all(half.is_decidable for half in self.halves)

    def is_resolved(self, part: Part) -> bool:
        """Whether an op record names the newest copy of a part."""
        return any(copy.queue_offset in self.resolved for copy in part.copies)

    def contradiction_error(
        self, decision: Decision, advice: str, log_end: int
    ) -> TransactionDecided:
        """Build the error for a request that contradicts the decision, which is in the log below
        the physical offset ``log_end``."""
        when = f" at {decision.at_ms} ms" if decision.at_ms else ""
        why = f" ({decision.why})" if decision.why else ""
        end = f"; {advice}" if advice else ""
        text = f"transaction {self.key} was {_WORDS[decision.verdict]}{when}{why}{end}"
        return TransactionDecided(
            text, decision.verdict.value, decision.at_ms, decision.why, log_end
        )


class TransactionTable:
    """The transactions by key, and the progress in the queues."""

    def __init__(self, half_offset: int, op_offset: int) -> None:
        self.half_end = half_offset
        """Queue offset of the next half message."""
        self.op_end = op_offset
        self.pending: dict[str, Transaction] = {}
        self.set_aside: dict[str, Transaction] = {}
        self.history: OrderedDict[str, Transaction] = OrderedDict()
        self._half_offset = half_offset
        self._op_offset = op_offset
        self._by_half: dict[int, Transaction] = {}
        self.named_end = 0
        """The queue offset after the last half that an op record names."""
        self._early: dict[int, Resolution] = {}
        """Resolutions by op records that were read before the half itself."""
        self._ops: deque[tuple[int, int]] = deque()
        """Op records ascending: queue offset, and the last half that it names."""

    def find(self, key: str) -> Transaction | None:
        """The transaction, or None."""
        return self.pending.get(key) or self.set_aside.get(key) or self.history.get(key)

    def add_half(self, half: Half) -> Transaction:
        """Note a half message, or another copy of one."""
        found = self.find(half.key)
        if found is None:
            found = self.pending[half.key] = Transaction(half.key, half)
        found.add(half)
        self._by_half[half.queue_offset] = found
        self.half_end = max(self.half_end, half.queue_offset + 1)
        early = self._early.pop(half.queue_offset, None)
        if early is not None and half.physical_offset < early.physical_offset:
            found.resolve(half.queue_offset, early)
        return found

    def add_op(self, resolution: Resolution, offsets: Iterable[int]) -> None:
        """Note an op record; the caller then settles a decided transaction by ``settle``.

        It concerns halves before it in the log: where a power cut removed one that it names,
        another half may have got its queue offset.
        """
        offsets = list(offsets)
        last = max(offsets, default=-1)
        self.op_end = max(self.op_end, resolution.op_offset + 1)
        self.named_end = max(self.named_end, last + 1)
        self._ops.append((resolution.op_offset, last))
        for offset in offsets:
            found = self._by_half.get(offset)
            if found is not None:
                found.resolve(offset, resolution)
            elif offset >= self._half_offset:
                self._early[offset] = resolution

    def settle(self, transaction: Transaction, decision: Decision) -> None:
        """Note that a transaction is over: all its halves are resolved."""
        transaction.decision = decision
        self.pending.pop(transaction.key, None)
        if decision.verdict is Verdict.SET_ASIDE:
            self.set_aside[transaction.key] = transaction
            return
        self.set_aside.pop(transaction.key, None)
        self.history[transaction.key] = transaction
        while len(self.history) > HISTORY_MAX:
            self.history.popitem(last=False)

    def progress(self) -> dict[tuple[str, int], int]:
        """Queue offsets below which everything is finished, as a broker computes them: every half
        message before is resolved or has a later copy, and every op record before names such
        ones."""
        newest = (half.queue_offset for each in self.pending.values() for half in each.halves)
        half_offset = max(self._half_offset, min(newest, default=self.half_end))
        over = (
            at for at, each in self._by_half.items() if at < half_offset and not each.is_pending
        )
        for offset in list(over):
            del self._by_half[offset]
        for offset in [each for each in self._early if each < half_offset]:
            del self._early[offset]
        while self._ops and self._ops[0][1] < half_offset:
            self._op_offset = self._ops.popleft()[0] + 1
        self._half_offset = half_offset
        return {(HALF_TOPIC, 0): half_offset, (OP_TOPIC, 0): self._op_offset}

    def to_resolve(self, transaction: Transaction) -> list[int]:
        """Queue offsets of its halves that an op record must name, so that a broker which continues
        from the saved offsets checks none of them again; all when it is decided again."""
        known = sorted(copy.queue_offset for copy in transaction.copies)
        left = [offset for offset in known if offset not in transaction.resolved]
        return left if left and transaction.is_pending else known
