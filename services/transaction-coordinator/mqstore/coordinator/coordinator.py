"""The coordinator of one shard: begins, decides, checks; its only state is the log.

Pure and driven in steps: it is handed its log, clock and keys. One caller at a time. After any
unclear answer of the log (LogUnavailable) it knows nothing any more and is loaded again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from mqstore.coordinator import loading
from mqstore.coordinator.begin import Begin, Begins
from mqstore.coordinator.check import Checks
from mqstore.coordinator.counts import Counts
from mqstore.coordinator.decide import Decide, Decided, Decisions
from mqstore.coordinator.errors import CoordinatorError
from mqstore.coordinator.ledger import Ledger, Steps
from mqstore.coordinator.log import Log, QueueOffsets
from mqstore.coordinator.schedule import Rules, Schedule
from mqstore.coordinator.transactions import Transaction, Transactions
from mqstore.storage.codec.message_id import UniqueKeys
from mqstore.storage.seams import Clock

PROGRESS_INTERVAL_S: Final = 5.0
"""As flushConsumerOffsetInterval."""

Taken = tuple[list[Transaction | CoordinatorError], list[Decided | CoordinatorError]]
"""What each of those who began is told, and each of those who decided."""


class Coordinator:
    """See the module."""

    def __init__(self, log: Log, clock: Clock, keys: UniqueKeys, rules: Rules) -> None:
        self._schedule = Schedule(clock, rules)
        self._ledger = Ledger(log, clock, keys, self._schedule)
        self._begins = Begins(self._ledger)
        self._decisions = Decisions(self._ledger)
        self._checks = Checks(self._ledger, self._decisions, rules)
        self._saved: QueueOffsets = {}
        self._to_save: tuple[QueueOffsets, int] | None = None
        """Progress, and the log's end that must be on disk before it may be saved."""
        self._progress_at = 0.0

    @property
    def is_loaded(self) -> bool:
        return self._ledger.is_loaded

    @property
    def state(self) -> Transactions:
        """Raises NotLoaded."""
        return self._ledger.state

    @property
    def checks_waiting(self) -> int:
        """How many are due for a check. May be read from any thread."""
        return self._schedule.waiting

    @property
    def counts(self) -> Counts:
        return self._ledger.counts

    @property
    def appends_failing_s(self) -> float:
        """For how long no append has succeeded, up to the last one that failed. Any thread."""
        return self._ledger.appends_failing.seconds

    def forget(self) -> None:
        """In another time in the lead: what is known may be out of date, and is read again."""
        self._ledger.forget()
        self._ledger.appends_failing.over()

    def load(self) -> None:
        """Take over, read everything back, and complete what a crash cut short.

        Raises LogUnavailable, Fenced, LogRefused, NotLoaded; to be called again then.
        """
        ledger = self._ledger
        began = ledger.clock.monotonic()
        ledger.take_over()
        log = ledger.log
        self._saved, self._to_save = log.offsets(), None
        state = loading.read_back(log, self._saved)
        ledger.remember(state)
        try:
            ledger.fill_up()
            unfinished = [*loading.torn(log, state), *loading.cut(log, state)]
            if refused := ledger.append_apart(self._decisions.complete(unfinished)):
                raise refused[0]
            loading.read_set_aside(log, state)
        except CoordinatorError:
            ledger.forget()
            raise
        for transaction in state.pending.values():
            self._schedule.begin(transaction)
        self._progress_at = ledger.clock.monotonic()
        ledger.counts.loads += 1
        ledger.counts.load_s = self._progress_at - began

    def step(self, now: float) -> float:
        """Do what is due at monotonic time ``now``; when to be called next. Raises as ``load``."""
        if not self.is_loaded:
            self.load()
        checks = self._checks
        tired = self._schedule.advance(now, self.state.pending)
        if now < self._progress_at:
            checks.set_aside(tired)
        else:
            checks.set_aside({*tired, *checks.too_old()})
            checks.carry()
            self._save_progress()
            self._progress_at = now + PROGRESS_INTERVAL_S
        return min(self._progress_at, self._schedule.next_at)

    def leave(self) -> None:
        """Save how far all is over: a broker that opens the store next goes on from there, and asks
        about no older copy. Raises LogUnavailable."""
        if self.is_loaded:
            self._to_save = (self.state.progress(), 0)
            self._ledger.log.sync()
            self._save_progress()

    def begin(self, asked: Sequence[Begin]) -> list[Transaction | CoordinatorError]:
        """Store the half messages of several transactions in one append.

        One that was begun before under the same unique keys is that one. Raises LogUnavailable:
        then none is known to be stored.
        """
        return self.take(asked, ())[0]

    def decide(self, asked: Sequence[Decide]) -> list[Decided | CoordinatorError]:
        """Take several decisions in one append; repeating one is fine.

        Each is one contiguous group: the real messages, then the op record. Raises LogUnavailable:
        then none is known to be taken.
        """
        return self.take((), asked)[1]

    def take(self, begins: Sequence[Begin], decisions: Sequence[Decide]) -> Taken:
        """``begin`` and ``decide`` in one append: for decisions of other transactions than these.

        Raises LogUnavailable: then nothing is known to be done.
        """
        return self._ledger.follow(self.taking(begins, decisions, reads=True))

    def taking(
        self, begins: Sequence[Begin], decisions: Sequence[Decide], *, reads: bool
    ) -> Steps[Taken]:
        """``take`` in steps, for a caller that waits for appends in another way. No other caller
        may use the coordinator between them. Unless it ``reads`` the log, a begin whose keys have
        records fails with KeysKnown, and decisions must be ``is_at_hand``."""
        begun = self._begins.plan(begins, reads=reads)
        decided = self._decisions.plan(decisions)
        yield from self._ledger.plans_appended([begun, decided])
        return begun.told, decided.told

    def is_at_hand(self, command: Begin | Decide) -> bool:
        """Whether ``taking`` needs no read of the log for this begin or decision."""
        return isinstance(command, Begin) or self._decisions.is_at_hand(command)

    @property
    def next_check_at(self) -> float:
        """Monotonic time at which the next transaction becomes due."""
        return self._schedule.next_at

    def find(self, key: str) -> Transaction:
        """A transaction, from memory or from the log. Raises TransactionUnknown."""
        return self._decisions.find(key)

    def due(self, groups: Iterable[str] | None = None) -> list[Transaction]:
        """Transactions whose producer groups should be asked now, in the order of their time."""
        return self._schedule.due(groups)

    def sending(self, keys: Iterable[str]) -> None:
        """Somebody asks about these, nobody else should. Unless ``sent`` or a decision follows,
        nothing is counted, and it is tried again after the usual time."""
        self._checks.sending(keys)

    def sent(self, keys: Iterable[str], by: str = "", answer: str | None = None) -> list[str]:
        """Checks that were sent: each half message is written once more with its count, as a broker
        does. Returns those of which it was. ``by`` is who was asked, ``answer`` what came back.
        Raises LogUnavailable, and LogRefused where the store took none of them."""
        return self._checks.sent(keys, by, answer)

    def unsent(self, keys: Iterable[str]) -> None:
        """Nobody could be asked about these after all: they are due again."""
        self._checks.unsent(keys)

    def _save_progress(self) -> None:
        """Save what was computed at an earlier turn, once all it rests on is on disk: else a power
        cut could leave offsets that have passed a half message's older copy, and not the newer."""
        state, log = self.state, self._ledger.log
        position = self._ledger.position()
        if self._to_save is not None:
            offsets, end = self._to_save
            if position.flushed < end:
                return
            saved = self._saved
            changed = {q: offset for q, offset in offsets.items() if offset != saved.get(q, 0)}
            if changed:
                log.save_offsets(changed)
                self._saved = {**self._saved, **changed}
        self._to_save = (state.progress(), position.end)
