"""The coordinator of one shard: begins, decides, checks; its only state is the log.

Pure and driven in steps: it is handed its log, clock and keys. One thread calls it. After any
unclear answer of the log (LogUnavailable) it knows nothing any more and must be loaded again, which
first fences off whatever append was still under way.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, TypeVar

from mqstore.coordinator import halves, loading
from mqstore.coordinator.errors import (
    Contradicted,
    CoordinatorError,
    LogRefused,
    LogUnavailable,
    NotLoaded,
    TransactionGone,
    TransactionUnknown,
)
from mqstore.coordinator.halves import Decision, Verdict
from mqstore.coordinator.log import Log, QueueOffsets, Standing, read_one
from mqstore.coordinator.records import NewRecord, Placement, Stored
from mqstore.coordinator.transactions import Part, Transaction, Transactions
from mqstore.storage.codec.message_id import UniqueKeys
from mqstore.storage.layout import HALF_TOPIC, OP_TOPIC, PROPERTY_UNIQ_KEY
from mqstore.storage.seams import Clock

PROGRESS_INTERVAL_S: Final = 5.0
"""As flushConsumerOffsetInterval."""
RETRY_S: Final = 1.0
CARRIED_AT_ONCE: Final = 100

T = TypeVar("T")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Rules:
    """When producers are asked; milliseconds."""

    transaction_timeout_ms: int = 6_000
    check_interval_ms: int = 60_000
    check_max: int = 15
    carry_behind: int = 10_000
    """A pending half message that lies so many behind the queue's end is written once more, as it
    is: what a restart has to read stays bounded, whoever is asked or not."""


@dataclass(frozen=True, slots=True)
class Begin:
    """A transaction to begin. Each message has a UNIQ_KEY, its topic and its queue."""

    group: str
    messages: Sequence[NewRecord]
    may_repeat: bool = True
    """Whether it may have been begun before: its unique keys are the producer's own."""


@dataclass(frozen=True, slots=True)
class Decide:
    """A decision to take: COMMIT or ROLLBACK."""

    key: str
    verdict: Verdict
    why: str
    by_hand: bool = False
    """Also of a transaction that was set aside."""


@dataclass(frozen=True, slots=True)
class Decided:
    """What a transaction's decision is, and whether it had been taken before."""

    transaction: Transaction
    decision: Decision
    repeated: bool


@dataclass(slots=True)
class _Group:
    """Records that belong together, and what to note once they are stored."""

    records: list[NewRecord]
    then: Callable[[list[Placement]], None]


class Coordinator:
    """See the module."""

    def __init__(self, log: Log, clock: Clock, keys: UniqueKeys, rules: Rules) -> None:
        self._log = log
        self._clock = clock
        self._keys = keys
        self._rules = rules
        self._state: Transactions | None = None
        self._standing: Standing | None = None
        self._ready: dict[str, dict[str, Transaction]] = {}
        """Due for a check, by group and key, in the order in which they became due."""
        self._schedule: list[tuple[float, int, str]] = []
        self._ticket = itertools.count()
        self._saved: QueueOffsets = {}
        self._to_save: tuple[QueueOffsets, int] | None = None
        """Progress, and the log's end that must be on disk before it may be saved."""
        self._progress_at = 0.0

    # life -----------------------------------------------------------------------------------

    @property
    def is_loaded(self) -> bool:
        return self._state is not None

    @property
    def state(self) -> Transactions:
        """Raises NotLoaded."""
        if self._state is None:
            raise NotLoaded("the half messages are being read; try again in a moment")
        return self._state

    @property
    def standing(self) -> Standing:
        """The store's facts. Raises NotLoaded."""
        if self._standing is None:
            raise NotLoaded("the store has not been reached yet; try again in a moment")
        return self._standing

    def load(self) -> None:
        """Take over, read everything back, and complete what a crash cut short.

        Raises LogUnavailable, Fenced, LogRefused, NotLoaded; to be called again then.
        """
        self._forget()
        self._standing = self._log.take_over()
        self._saved = self._log.offsets()
        state = loading.read_back(self._log, self._saved)
        self._state = state
        try:
            unfinished = [*loading.torn(self._log, state), *loading.cut(self._log, state)]
            self._append([self._completion(*each) for each in unfinished])
            loading.read_set_aside(self._log, state)
        except CoordinatorError:
            self._forget()
            raise
        now = self._clock.monotonic()
        for transaction in state.pending.values():
            self._plan_check(transaction, now)
        self._progress_at = now

    def step(self, now: float) -> float:
        """Do what is due at monotonic time ``now``; when to be called next. Raises as ``load``."""
        if self._state is None:
            self.load()
        tired = self._due_or_tired(now)
        if now < self._progress_at:
            self._set_aside(tired)
        else:
            self._set_aside({*tired, *self._too_old()})
            with suppress(LogRefused):  # tried again at the next turn
                self._carry()
            self._save_progress()
            self._progress_at = now + PROGRESS_INTERVAL_S
        return min([self._progress_at, *[entry[0] for entry in self._schedule[:1]]])

    def _due_or_tired(self, now: float) -> list[str]:
        """Make ready what is due for a check; the keys of those checked often enough."""
        tired = []
        while self._schedule and self._schedule[0][0] <= now:
            _, _, key = heapq.heappop(self._schedule)
            transaction = self.state.pending.get(key)
            if transaction is None or transaction.due_at > now:
                continue
            if transaction.check_times >= self._rules.check_max:
                tired.append(key)
            else:
                self._ready.setdefault(transaction.group, {})[key] = transaction
            transaction.due_at = math.inf
        return tired

    def _forget(self) -> None:
        self._state = None
        self._ready.clear()
        self._schedule.clear()
        self._to_save = None

    # begin and decide -----------------------------------------------------------------------

    def begin(self, asked: Sequence[Begin]) -> list[Transaction | CoordinatorError]:
        """Store the half messages of several transactions in one append.

        One that was begun before under the same unique keys is that one. Raises LogUnavailable:
        then none is known to be stored.
        """
        results: list[Transaction | CoordinatorError | None] = [None] * len(asked)
        groups: dict[int, _Group] = {}
        under_way: set[str] = set()
        for index, each in enumerate(asked):
            if _key_of(each) in under_way:
                continue  # looked at again below, once the first one is stored
            results[index] = _try(partial(self._begun, each))
            if results[index] is None:
                groups[index] = self._half_group(each)
                under_way.add(_key_of(each))
        self._collect(groups, results, lambda index: self.state.find(_key_of(asked[index])))
        for index, each in enumerate(asked):
            if results[index] is None:
                results[index] = _try(partial(self._begun, each)) or LogRefused(
                    "the transaction that it repeats was refused; begin again"
                )
        return [result for result in results if result is not None]

    def _begun(self, asked: Begin) -> Transaction | None:
        """The same transaction, when it was begun before: a producer asks again when it got no
        answer. Raises Contradicted for another one under its key, or when it is over."""
        key = _key_of(asked)
        found = self.state.find(key)
        if found is None and asked.may_repeat:
            found = loading.find(self._log, key)
        if found is None:
            return None
        places = {(half.uniq_key, half.topic) for half in found.halves}
        given = {(each.properties[PROPERTY_UNIQ_KEY], each.topic) for each in asked.messages}
        if found.group != asked.group or places != given:
            raise Contradicted(
                f"there is another transaction with the unique key {key}; send new unique keys",
                *("begun", found.born_ms, ""),
            )
        decision = found.decision
        if decision is not None and decision.verdict is not Verdict.COMMIT:
            raise _contradicted(found, decision, "send new unique keys")
        return found

    def _half_group(self, asked: Begin) -> _Group:
        store_format = self.standing.store_format
        extra = halves.parts_of(_key_of(asked), len(asked.messages))
        records = [
            halves.half_of(
                replace(each, properties={**each.properties, **extra}), asked.group, store_format
            )
            for each in asked.messages
        ]
        return _Group(records, lambda placed: self._note_halves(records, placed))

    def decide(self, asked: Sequence[Decide]) -> list[Decided | CoordinatorError]:
        """Take several decisions in one append; repeating one is fine.

        Each is one contiguous group: the real messages, then the op record. Raises LogUnavailable:
        then none is known to be taken.
        """
        results: list[Decided | CoordinatorError | None] = [None] * len(asked)
        groups: dict[int, _Group] = {}
        under_way: dict[str, int] = {}
        for index, each in enumerate(asked):
            try:
                transaction = self.find(each.key)
                if transaction.key in under_way:
                    continue  # looked at again below, once the first one is stored
                if transaction.decision is None or _reopens(transaction, each):
                    groups[index] = self._decision_group(transaction, each)
                    under_way[transaction.key] = index
            except LogUnavailable:
                raise
            except CoordinatorError as error:
                results[index] = error
        self._collect(groups, results, lambda index: self._outcome(asked[index], repeated=False))
        for index, each in enumerate(asked):
            if results[index] is None:
                results[index] = _try(partial(self._outcome, each, repeated=True))
        return [result for result in results if result is not None]

    def find(self, key: str) -> Transaction:
        """A transaction, from memory or from the log. Raises TransactionUnknown."""
        found = self.state.find(key) or loading.find(self._log, key)
        if found is None:
            raise TransactionUnknown(f"there is no transaction {key}")
        return found

    def _outcome(self, asked: Decide, *, repeated: bool) -> Decided:
        """Raises Contradicted."""
        transaction = self.find(asked.key)
        decision = transaction.decision
        if decision is None:
            raise LogRefused("the decision it repeats was refused; decide again")
        if decision.verdict is not asked.verdict:
            is_aside = decision.verdict is Verdict.SET_ASIDE
            raise _contradicted(transaction, decision, "resolve it by hand" if is_aside else "")
        return Decided(transaction, decision, repeated)

    def _decision_group(self, transaction: Transaction, asked: Decide) -> _Group:
        decision = Decision(asked.verdict, self._clock.now_ms(), asked.why)
        parts = transaction.parts.values()
        if transaction.is_pending:  # a broker may have resolved some of its messages by themselves
            parts_left = [part for part in parts if not transaction.is_resolved(part)]
            return self._group(transaction, decision, parts_left)
        return self._group(transaction, decision, parts)

    def _group(
        self, transaction: Transaction, decision: Decision, to_append: Iterable[Part]
    ) -> _Group:
        """A decision's records; of a commit, the real messages of ``to_append`` first."""
        standing = self.standing
        records: list[NewRecord] = []
        if decision.verdict is not Verdict.ROLLBACK:
            for part in to_append:
                half = self._content(transaction, part)
                if decision.verdict is Verdict.SET_ASIDE:
                    records.append(halves.set_aside_of(half))
                else:
                    place, store_format = part.newest, standing.store_format
                    records.append(halves.committed_of(half, place, store_format))
        offsets = self.state.to_resolve(transaction)
        ops = halves.ops_of(
            *(offsets, transaction.key, decision, standing.host),
            *(self._keys.next(), standing.store_format),
        )
        begin = len(records)

        def note(placed: list[Placement]) -> None:
            for op, place in zip(ops, placed[begin:], strict=True):
                self.state.add_op(place.queue_offset, halves.offsets_in(op.body), decision)
            self.state.settle(transaction, decision)
            self._ready.get(transaction.group, {}).pop(transaction.key, None)

        return _Group(records + ops, note)

    def _content(self, transaction: Transaction, part: Part) -> Stored:
        """A record with a part's content: the newest copy of its half, or the copy that was set
        aside. Raises TransactionGone, LogUnavailable."""
        half = part.newest
        found = read_one(self._log, HALF_TOPIC, halves.QUEUE, half.queue_offset)
        if found is not None:
            seen = halves.read_half(found)
            if seen is None or (seen.key, seen.physical_offset) != (
                transaction.key,
                half.physical_offset,
            ):
                raise self._lost_touch(f"another half message stands at {half.queue_offset}")
            return found
        if (kept := loading.kept_copy(self._log, half)) is not None:
            return kept
        raise TransactionGone(
            f"the half message of transaction {transaction.key} cannot be read any more; it can "
            "only be rolled back"
        )

    # checks ---------------------------------------------------------------------------------

    def due(self, groups: Iterable[str] | None = None) -> list[Transaction]:
        """Transactions whose producer groups should be asked now, in the order of their time."""
        names = self._ready if groups is None else groups
        return [each for name in list(names) for each in self._ready.get(name, {}).values()]

    def sending(self, keys: Iterable[str]) -> None:
        """Somebody asks about these, nobody else should. Unless ``sent`` or a decision follows,
        nothing is counted, and it is tried again after the usual time."""
        for key in keys:
            transaction = self.state.pending.get(key)
            if transaction is not None:
                self._ready.get(transaction.group, {}).pop(key, None)
                self._check_again(transaction)

    def sent(self, keys: Iterable[str]) -> list[str]:
        """Checks that were sent: each half message is written once more with its count, as a broker
        does. Returns those that were pending. Raises LogUnavailable, LogRefused."""
        groups: list[tuple[str, _Group]] = []
        for key in keys:
            transaction = self.state.pending.get(key)
            if transaction is None:
                continue
            try:
                times = transaction.check_times + 1
                groups.append((key, self._copy_group(transaction, times, self._checked)))
            except TransactionGone:
                continue
        self._append([group for _, group in groups])
        return [key for key, _ in groups]

    def _copy_group(
        self, transaction: Transaction, times: int, then: Callable[[Transaction, int], None]
    ) -> _Group:
        """Another copy of each of its halves, all together."""
        parts = list(transaction.parts.values())
        records = [
            halves.checked_copy_of(self._content(transaction, part), part.newest, times)
            for part in parts
        ]

        def note(placed: list[Placement]) -> None:
            self._note_halves(records, placed)
            then(transaction, placed[-1].store_timestamp_ms)

        return _Group(records, note)

    def _checked(self, transaction: Transaction, at_ms: int) -> None:
        transaction.last_check_ms = at_ms
        self._ready.get(transaction.group, {}).pop(transaction.key, None)
        self._check_again(transaction)

    def _carry(self) -> None:
        """Write the half messages again that hold the saved offsets back."""
        behind = self.state.half_end - self._rules.carry_behind
        late = (
            each
            for each in self.state.pending.values()
            if min(half.queue_offset for half in each.halves) < behind
        )
        groups = []
        for transaction in itertools.islice(late, CARRIED_AT_ONCE):
            with suppress(TransactionGone):
                times = transaction.check_times
                groups.append(self._copy_group(transaction, times, lambda *_: None))
        self._append(groups)

    def _is_ready(self, transaction: Transaction) -> bool:
        return transaction.key in self._ready.get(transaction.group, {})

    def _check_again(self, transaction: Transaction) -> None:
        now = self._clock.monotonic()
        self._look_at(transaction, now + self._rules.check_interval_ms / 1000)

    def _plan_check(self, transaction: Transaction, now: float) -> None:
        """When a transaction's first or next check is due."""
        half = transaction.halves[-1]
        wall = self._clock.now_ms()
        if transaction.check_times:
            due_ms = half.store_timestamp_ms + self._rules.check_interval_ms
            longest = self._rules.check_interval_ms
        else:
            given = half.immunity_ms
            longest = self._rules.transaction_timeout_ms if given is None else given
            due_ms = transaction.born_ms + longest
        # A clock that was stepped back makes nobody wait for longer than the whole time.
        self._look_at(transaction, now + min(max(0, due_ms - wall), longest) / 1000)

    def _look_at(self, transaction: Transaction, due_at: float) -> None:
        transaction.due_at = due_at
        self._push(due_at, transaction.key)

    def _push(self, at: float, key: str) -> None:
        heapq.heappush(self._schedule, (at, next(self._ticket), key))

    def _too_old(self) -> list[str]:
        """Keys of those whose half messages may soon be deleted."""
        before_ms = self._clock.now_ms() - self.standing.reserved_ms
        return [each.key for each in self.state.pending.values() if each.born_ms <= before_ms]

    def _set_aside(self, keys: Iterable[str]) -> None:
        """Raises LogUnavailable; what the store refuses now is tried again."""
        for key in sorted(keys):
            transaction = self.state.pending[key]
            checked = transaction.check_times >= self._rules.check_max
            why = f"checked {transaction.check_times} times" if checked else "too old to be kept"
            decision = Decision(Verdict.SET_ASIDE, self._clock.now_ms(), why)
            try:
                self._append([self._group(transaction, decision, transaction.parts.values())])
            except TransactionGone:
                lost = replace(decision, verdict=Verdict.ROLLBACK, why="its half message is gone")
                self._append([self._group(transaction, lost, ())])
            except LogRefused:
                self._look_at(transaction, self._clock.monotonic() + RETRY_S)

    # progress -------------------------------------------------------------------------------

    def _save_progress(self) -> None:
        """Save what was computed at an earlier turn, once all it rests on is on disk: else a power
        cut could leave offsets that have passed a half message's older copy, and not the newer."""
        if self._to_save is not None:
            offsets, end = self._to_save
            if self._log.flushed_offset() < end:
                return
            saved = self._saved
            changed = {q: offset for q, offset in offsets.items() if offset != saved.get(q, 0)}
            if changed:
                self._log.save_offsets(changed)
                self._saved = {**self._saved, **changed}
        self._to_save = (self.state.progress(), self._log.end_offset())

    # appending ------------------------------------------------------------------------------

    def _note_halves(self, records: Sequence[NewRecord], placed: Sequence[Placement]) -> None:
        now = self._clock.monotonic()
        for record, place in zip(records, placed, strict=True):
            half = halves.read_half(
                Stored(record, place.queue_offset, place.physical_offset, place.store_timestamp_ms)
            )
            assert half is not None, "it was made here"
            transaction = self.state.add_half(half)
        if transaction.due_at == math.inf and not self._is_ready(transaction):
            self._plan_check(transaction, now)

    def _completion(
        self, transaction: Transaction, decision: Decision, missing: list[Part]
    ) -> _Group:
        """The rest of a group that was cut short. Raises LogUnavailable."""
        if decision.at_ms is None:
            decision = replace(decision, at_ms=self._clock.now_ms())
        try:
            return self._group(transaction, decision, missing)
        except TransactionGone as error:
            _log.error("a commit cannot be completed: %s", error)
            return self._group(transaction, decision, ())

    def _collect(
        self,
        groups: dict[int, _Group],
        results: list[T | CoordinatorError | None],
        result: Callable[[int], T | CoordinatorError | None],
    ) -> None:
        """Append all groups, each by itself where the store refuses them together."""
        refused = self._append_each(groups)
        for index in groups:
            try:
                results[index] = refused.get(index) or result(index)
            except LogUnavailable:
                raise
            except CoordinatorError as error:
                results[index] = error

    def _append_each(self, groups: dict[int, _Group]) -> dict[int, CoordinatorError]:
        try:
            self._append(list(groups.values()))
        except LogRefused as error:
            if len(groups) == 1:
                return dict.fromkeys(groups, error)
            refused: dict[int, CoordinatorError] = {}
            for index, group in groups.items():
                refused |= self._append_each({index: group})
            return refused
        return {}

    def _append(self, groups: Sequence[_Group]) -> None:
        """One contiguous append; whatever its answer leaves unclear is found out by loading."""
        records = [record for group in groups for record in group.records]
        if not records:
            return
        state = self.state
        expected = {(HALF_TOPIC, 0): state.half_end, (OP_TOPIC, 0): state.op_end}
        try:
            placed = self._log.append(records)
        except LogUnavailable:
            self._forget()
            raise
        begin = 0
        for group in groups:
            end = begin + len(group.records)
            group.then(placed[begin:end])
            begin = end
        self._check_offsets(records, placed, expected)

    def _check_offsets(
        self,
        records: Sequence[NewRecord],
        placed: Sequence[Placement],
        expected: dict[tuple[str, int], int],
    ) -> None:
        """Half and op queues grow by what is written here alone; else the store lost its end, or
        somebody else wrote, and what we remember is not to be trusted."""
        for record, place in zip(records, placed, strict=True):
            queue = record.topic, record.queue_id
            if queue in expected:
                if place.queue_offset != expected[queue]:
                    self._forget()
                    return
                expected[queue] += 1

    def _lost_touch(self, why: str) -> LogUnavailable:
        self._forget()
        return LogUnavailable(f"the store changed behind us ({why}); it is read again")


def _key_of(asked: Begin) -> str:
    """A transaction goes by its first message's unique key."""
    return asked.messages[0].properties[PROPERTY_UNIQ_KEY]


def _reopens(transaction: Transaction, asked: Decide) -> bool:
    """Whether a person decides what was set aside."""
    decision = transaction.decision
    return asked.by_hand and decision is not None and decision.verdict is Verdict.SET_ASIDE


def _contradicted(transaction: Transaction, decision: Decision, advice: str) -> Contradicted:
    when = f" at {decision.at_ms} ms" if decision.at_ms else ""
    why = f" ({decision.why})" if decision.why else ""
    end = f"; {advice}" if advice else ""
    text = f"transaction {transaction.key} was {_WORDS[decision.verdict]}{when}{why}{end}"
    return Contradicted(text, decision.verdict.value, decision.at_ms, decision.why)


_WORDS: Final = {
    Verdict.COMMIT: "committed",
    Verdict.ROLLBACK: "rolled back",
    Verdict.SET_ASIDE: "set aside",
}


def _try(act: Callable[[], T | CoordinatorError]) -> T | CoordinatorError:
    try:
        return act()
    except LogUnavailable:
        raise
    except CoordinatorError as error:
        return error
