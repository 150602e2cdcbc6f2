"""Two-phase messages of one store: begins, decisions and checks. The only state is the log.

RocketMQ's TransactionalMessageServiceImpl also decides inside the broker, over its own log.
"""

from __future__ import annotations

import heapq
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from threading import Lock
from typing import Final, TypeVar

from mqstore.storage._kernel import BeginRequest
from mqstore.storage.codec.hosts import Host
from mqstore.storage.codec.unique_keys import UniqueKeys
from mqstore.storage.errors import (
    FilePending,
    StorageError,
    StoreFailed,
    TransactionsNotLoaded,
)
from mqstore.storage.message_store import MessageStore
from mqstore.storage.seams import Seams
from mqstore.storage.transactions import loading
from mqstore.storage.transactions.begin import Begin, BeginResult, Begins
from mqstore.storage.transactions.check import RETRY_S, Checks, CheckSent
from mqstore.storage.transactions.counts import Counts
from mqstore.storage.transactions.decide import Decide, DecisionResult, Decisions
from mqstore.storage.transactions.halves import Verdict
from mqstore.storage.transactions.ledger import Ledger, OnAppend
from mqstore.storage.transactions.log import QueueOffsets, TransactionLog
from mqstore.storage.transactions.plain import PlainTransactions
from mqstore.storage.transactions.schedule import Rules, Schedule
from mqstore.storage.transactions.snapshot import State, TransactionSnapshot, snapshot_of, state_of
from mqstore.storage.transactions.table import Transaction

PROGRESS_INTERVAL_S: Final = 5.0
"""RocketMQ's flushConsumerOffsetInterval."""

Taken = tuple[list[BeginResult | StorageError], list[DecisionResult | StorageError]]
"""The result of each begin, and of each decision."""

T = TypeVar("T")
_log = logging.getLogger(__name__)


class TransactionEngine:
    """A ``BackgroundService`` for two-phase messages. Thread-safe: ``take_at_hand`` is for an event
    loop, the other methods for threads that may wait for the log.

    Its results are not known to be on disk: wait for a result's ``end``.
    """

    name = "transactions"

    def __init__(
        self, store: MessageStore, seams: Seams, keys: UniqueKeys, rules: Rules | None = None
    ) -> None:
        """``keys`` generates the unique keys of op records."""
        rules = rules or Rules()
        self._schedule = Schedule(seams.clock, rules)
        self._ledger = Ledger(TransactionLog(store), seams.clock, keys, self._schedule)
        self._begins = Begins(self._ledger)
        self._decisions = Decisions(self._ledger)
        self._plain = PlainTransactions(self._ledger)
        self._checks = Checks(self._ledger, self._decisions, rules)
        self._lock = Lock()
        self._saved: QueueOffsets = {}
        self._to_save: tuple[QueueOffsets, int] | None = None
        """Progress, and the log's end that must be on disk before it may be saved."""
        self._progress_at = 0.0
        self._wake_at = 0.0
        self.trouble: str | None = "the half messages are being read"
        """Why no transaction can be begun or decided now, or None."""
        self.on_due: Callable[[], None] = _do_nothing
        """Called, by the thread of ``step``, when checks have become due."""
        self.wake: Callable[[], None] = _do_nothing
        """``ServiceHandle.wake`` of this service."""

    # begins and decisions -----------------------------------------------------------------

    def take(self, begins: Sequence[Begin], decisions: Sequence[Decide]) -> Taken:
        """Store the half messages of begins, and take decisions, all in one append.

        A begin that repeats an earlier one under the same unique keys returns that one; so does a
        repeated decision. A decision is one contiguous group: the real messages, then the op
        records. Groups that the store rejects together are tried one by one. Results are in order:
        of a begin BeginResult, UniqueKeyTaken, TransactionDecided or another PutRefused; of a
        decision DecisionResult, TransactionDecided, TransactionUnknown, TransactionGone or a
        PutRefused; TransactionsNotLoaded of either: try again.

        Raises StoreFailed, TransactionsNotLoaded.
        """
        self._require_loaded()
        with self._lock:
            begun = {each.key for each in begins}
            if any(each.key in begun for each in decisions):
                taken = self._take(begins, ())[0], self._take((), decisions)[1]
            else:
                taken = self._take(begins, decisions)
            self._look_ahead()
        return taken

    def take_at_hand(self, begins: Sequence[Begin], decisions: Sequence[Decide]) -> Taken | None:
        """``take`` without waiting: no read of the log, no creation of a file, no other thread.

        None when that is not possible: then call ``take`` from another thread. Raises StoreFailed,
        TransactionsNotLoaded.
        """
        self._require_loaded()
        if not self._lock.acquire(blocking=False):
            return None
        ledger = self._ledger
        try:
            if not all(map(self._begins.is_at_hand, begins)):
                return None
            if not all(map(self._decisions.is_at_hand, decisions)):
                return None
            ledger.makes_files = False
            taken = self._take(begins, decisions)
            self._look_ahead()
        except FilePending:
            return None
        finally:
            ledger.makes_files = True
            self._lock.release()
        return taken

    def begin_plain(
        self, request: BeginRequest, queue_id: int, born_host: Host
    ) -> BeginResult | None:
        """``take_at_hand`` for the begin of one message to this queue of its topic, in one call of
        the kernel. None, with nothing stored, where ``take_at_hand`` has to do it."""
        return self._do_at_once(lambda: self._plain.begin(request, queue_id, born_host))

    def decide_plain(self, key: str, verdict: Verdict, why: str) -> DecisionResult | None:
        """As ``begin_plain``, for a decision (commit or rollback) of a producer."""
        return self._do_at_once(lambda: self._plain.decide(key, verdict, why))

    def _do_at_once(self, act: Callable[[], T | None]) -> T | None:
        """Return the result of ``act``; None while another thread uses the engine."""
        if not self._ledger.is_loaded or not self._lock.acquire(blocking=False):
            return None
        try:
            result = act()
            self._look_ahead()
        finally:
            self._lock.release()
        return result

    def _take(self, begins: Sequence[Begin], decisions: Sequence[Decide]) -> Taken:
        begun, decided = self._begins.plan(begins), self._decisions.plan(decisions)
        self._ledger.append_plans([begun, decided])
        return begun.complete, decided.complete

    def _require_loaded(self) -> None:
        """Check without the lock, which a read of the log holds for long."""
        if not self._ledger.is_loaded:
            raise TransactionsNotLoaded(
                self.trouble or "the half messages are being read; try again in a moment"
            )

    # queries ------------------------------------------------------------------------------

    def find(self, key: str) -> TransactionSnapshot:
        """Find a transaction in memory or in the log.

        Raises TransactionUnknown, TransactionsNotLoaded.
        """
        self._require_loaded()
        with self._lock:
            return snapshot_of(self._decisions.find(key))

    def knows(self, topic: str, keys: Sequence[str]) -> bool:
        """Whether a transaction was begun here under the unique keys that a producer chose: those
        of messages of ``topic``, the first message's first. Also one that was decided, and one that
        was begun before a restart. May read the log. Raises TransactionsNotLoaded."""
        self._require_loaded()
        with self._lock:
            return self._begins.knows(topic, keys)

    def snapshots(
        self,
        states: Collection[State],
        group: str | None,
        before_ms: int,
        *,
        follows: Callable[[int, str], bool] | None = None,
        limit: int | None = None,
    ) -> list[TransactionSnapshot]:
        """Up to ``limit`` transactions in some states, of a producer group (None: all), begun at
        ``before_ms`` or earlier, oldest first.

        ``follows`` is called with a time and a key and returns whether the transaction belongs to
        the list. Of decided ones the newest 50,000 are remembered. Raises TransactionsNotLoaded.
        """
        self._require_loaded()
        with self._lock:
            known = self._ledger.state
            found = (
                each
                for table in (known.pending, known.set_aside, known.history)
                for each in table.values()
                if state_of(each) in states
                and group in (None, each.group)
                and each.born_ms <= before_ms
                and (follows is None or follows(each.born_ms, each.key))
            )
            if limit is None:
                oldest = sorted(found, key=_age)
            else:
                oldest = heapq.nsmallest(limit, found, key=_age)
            return [snapshot_of(each) for each in oldest]

    @property
    def counts(self) -> Counts:
        """The counters of the engine."""
        return self._ledger.counts

    @property
    def pending_count(self) -> int:
        """Number of known transactions without a decision."""
        known = self._ledger.known
        return 0 if known is None else len(known.pending)

    @property
    def set_aside_count(self) -> int:
        """Number of transactions that an operator has to decide."""
        known = self._ledger.known
        return 0 if known is None else len(known.set_aside)

    @property
    def checks_waiting(self) -> int:
        """Number of transactions that are due for a check."""
        return self._schedule.waiting

    @property
    def pending_born_ms(self) -> list[int]:
        """Begin times of the pending transactions in Unix milliseconds, in no order."""
        if not self._ledger.is_loaded:
            return []
        with self._lock:
            known = self._ledger.known  # a read that failed meanwhile leaves None
            pending = () if known is None else known.pending.values()
            return [each.born_ms for each in pending]

    @property
    def half_counts(self) -> Counter[str]:
        """Half messages of pending transactions, by topic."""
        if not self._ledger.is_loaded:
            return Counter()
        with self._lock:
            known = self._ledger.known
            pending = () if known is None else known.pending.values()
            return Counter(half.topic for each in pending for half in each.halves)

    # checks -------------------------------------------------------------------------------

    def lease(
        self, groups: Collection[str] | None, count: int, seconds: float | None = None
    ) -> list[TransactionSnapshot]:
        """Lease up to ``count`` transactions whose producer group (None: any) is to be checked now.

        No other caller gets them for ``seconds`` (None: the check interval). Raises
        TransactionsNotLoaded.
        """
        self._require_loaded()
        with self._lock:
            found = [snapshot_of(each) for each in self._checks.lease(groups, count, seconds)]
            self._look_ahead()
        return found

    def due_groups(self) -> list[str]:
        """Producer groups with transactions that are due for a check."""
        return self._schedule.due_groups()

    def count_checks(self, checks: Sequence[CheckSent]) -> list[str]:
        """Count checks that were sent: each half message is written again with its count, as in a
        broker.

        Returns the keys of the transactions that were still pending. Raises PutRefused where the
        store accepted none, StoreFailed, TransactionsNotLoaded.
        """
        self._require_loaded()
        with self._lock:
            return self._checks.count(checks)

    def release(self, keys: Iterable[str]) -> None:
        """End the leases of transactions whose producers could not be reached: they are due
        again."""
        self._require_loaded()
        with self._lock:
            self._checks.release(keys)
            self._look_ahead()

    def watch_appends(self, on_append: OnAppend) -> None:
        """Call ``on_append`` after each append, in the thread that appends, with the engine's lock
        held."""
        self._ledger.on_append = on_append

    # in the background --------------------------------------------------------------------

    def step(self, now: float) -> float:
        """Read the log when needed, plan checks, set aside transactions that were checked too
        often, and save progress. Raises StoreFailed."""
        wake = now + RETRY_S
        trouble, level = None, logging.WARNING
        with self._lock:
            readied = self._schedule.readied
            try:
                wake = self._step(now)
            except StoreFailed:
                raise
            except TransactionsNotLoaded as error:  # as after each halt, until dispatch caught up
                trouble, level = str(error), logging.INFO
            except StorageError as error:
                trouble = str(error)
            self._wake_at = wake
            is_due = self._schedule.readied > readied
        if trouble is not None and trouble != self.trouble:
            _log.log(level, "transactions wait: %s", trouble)
        self.trouble = trouble
        if is_due:
            self.on_due()
        return wake

    def leave(self) -> None:
        """Save progress before the store is closed. Raises StorageError.

        A broker that opens the store next continues from there, and checks no older copy.
        """
        with self._lock:
            if self._ledger.is_loaded:
                self._to_save = (self._ledger.state.progress(), 0)
                self._ledger.log.sync()
                self._save_progress()

    def _step(self, now: float) -> float:
        if not self._ledger.is_loaded:
            self._load()
        checks = self._checks
        tired = self._schedule.advance(now, self._ledger.state.pending)
        if now < self._progress_at:
            checks.set_aside(tired)
        else:
            checks.set_aside({*tired, *checks.too_old(), *checks.undecidable()})
            checks.carry()
            self._save_progress()
            self._progress_at = now + PROGRESS_INTERVAL_S
        return min(self._progress_at, self._schedule.next_at)

    def _load(self) -> None:
        """Read everything back, and complete interrupted decisions.

        Raises StorageError; the caller then retries.
        """
        ledger = self._ledger
        ledger.forget()
        began = ledger.clock.monotonic()
        log = ledger.log
        log.settle()
        self._saved, self._to_save = log.offsets(), None
        state = loading.read_back(log, self._saved)
        ledger.remember(state)
        try:
            ledger.fill_up()
            unfinished = [*loading.find_torn(log, state), *loading.find_unfinished(log, state)]
            if refused := ledger.append_apart(self._decisions.complete(unfinished)):
                raise refused[0]
            loading.read_set_aside(log, state)
        except StorageError:
            ledger.forget()
            raise
        for transaction in state.pending.values():
            if transaction.is_decidable:
                self._schedule.begin(transaction)
        self._progress_at = ledger.clock.monotonic()
        ledger.counts.loads += 1
        ledger.counts.load_s = self._progress_at - began

    def _save_progress(self) -> None:
        """Save the progress of an earlier step, once everything that it depends on is on disk:
        otherwise a power cut could leave offsets beyond a half message's older copy, without the
        newer one."""
        state, log = self._ledger.state, self._ledger.log
        flushed, end = log.flushed_offset, log.end_offset
        if self._to_save is not None:
            offsets, needed = self._to_save
            if flushed < needed:
                return
            saved = self._saved
            changed = {q: offset for q, offset in offsets.items() if offset != saved.get(q, 0)}
            if changed:
                log.save_offsets(changed)
                self._saved = {**self._saved, **changed}
        self._to_save = (state.progress(), end)

    def _look_ahead(self) -> None:
        """Wake ``step`` when it is needed before its next time."""
        if not self._ledger.is_loaded or self._schedule.next_at < self._wake_at:
            self._wake_at = 0.0
            self.wake()


def _age(transaction: Transaction) -> tuple[int, str]:
    return transaction.born_ms, transaction.key


def _do_nothing() -> None:
    return
