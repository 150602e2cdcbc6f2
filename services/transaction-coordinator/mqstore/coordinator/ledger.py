"""What is known of one shard's log, and the one way to append to it.

The log is the truth: after any unclear answer of it (LogUnavailable) nothing is known any more, and
it must be read again, which first fences off whatever append was still under way.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Generic, TypeVar

from mqstore.coordinator import halves, loading
from mqstore.coordinator.counts import Counts
from mqstore.coordinator.errors import (
    CoordinatorError,
    LogRefused,
    LogUnavailable,
    NotLoaded,
    Reopened,
    TransactionGone,
)
from mqstore.coordinator.failing import Failing
from mqstore.coordinator.halves import Decision, Verdict
from mqstore.coordinator.log import Log, LogPosition, Standing, read_one
from mqstore.coordinator.recent import RecentHalves
from mqstore.coordinator.records import Append, Key, NewRecord, Placement, Stored
from mqstore.coordinator.schedule import Schedule
from mqstore.coordinator.transactions import Part, Resolution, Transaction, Transactions
from mqstore.storage.codec.message_id import UniqueKeys
from mqstore.storage.layout import HALF_TOPIC, OP_TOPIC
from mqstore.storage.seams import Clock

FILLED_MAX: Final = 10_000
"""Half messages in whose place fillers are put."""
FILLED_AT_ONCE: Final = 100
RUN_MAX: Final = 64
RUN_SIZE_MAX: Final = 4 << 20
"""Groups of one append that need not be one, and bytes of their bodies and properties."""
K = TypeVar("K", bound=Hashable)
T = TypeVar("T")
Steps = Generator[Append, list[Placement], T]
"""Something to do with appends in it: it yields each of them, and is sent where its records stand,
or thrown the CoordinatorError of ``Log.append``. So it does not matter how an append is waited for.
"""
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Group:
    """Records that belong together, and what to note once they are stored."""

    records: list[NewRecord]
    then: Callable[[list[Placement]], None]
    is_unclear: bool = False
    """Whether the log has to be read again to tell what became of it."""
    absent: Sequence[Key] = ()
    """Keys that no record may have yet."""

    @property
    def size(self) -> int:
        """Bytes of bodies and properties, about."""
        return sum(
            len(each.body) + sum(map(len, each.properties.values())) for each in self.records
        )


@dataclass(slots=True)
class Plan(Generic[T]):
    """What several askers of one kind need of one append, and what each is told."""

    results: list[T | CoordinatorError | None]
    """None until it is known; complete after ``Ledger.plans_appended``."""
    groups: dict[int, Group]
    """To append, by the asker's number."""
    stored: Callable[[int], T]
    """The result of an asker whose group was stored; may raise a CoordinatorError."""
    repeated: Callable[[int], T]
    """That of one who asked for the same as another one."""

    @property
    def told(self) -> list[T | CoordinatorError]:
        """Once it was appended."""
        return [result for result in self.results if result is not None]


class Ledger:
    """The log, what memory holds of it, and who is to be asked when. Used by one thread."""

    def __init__(self, log: Log, clock: Clock, keys: UniqueKeys, schedule: Schedule) -> None:
        self.log = log
        self.clock = clock
        self.keys = keys
        self.schedule = schedule
        self.counts = Counts()
        self.appends_failing = Failing(clock.monotonic)
        self._recent = RecentHalves()
        self._state: Transactions | None = None
        self._standing: Standing | None = None

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

    def take_over(self) -> None:
        """Fence off everybody else. Raises LogUnavailable, Fenced."""
        self.forget()
        self._standing = self.log.take_over()

    def remember(self, state: Transactions) -> None:
        """What was read back counts from now on."""
        self._state = state

    def forget(self) -> None:
        """What is known may be wrong: it must be read again."""
        self._state = None
        self._recent.clear()
        self.schedule.clear()

    def position(self) -> LogPosition:
        """How far the log is. Raises LogUnavailable; of a store that was opened again, nothing is
        known any more."""
        try:
            return self.log.position()
        except Reopened:
            self.forget()
            raise

    def content(self, transaction: Transaction, part: Part) -> Stored:
        """A record with a part's content: the newest copy of its half, or the copy that was set
        aside. Raises TransactionGone, LogUnavailable."""
        half = part.newest
        if (recent := self._recent.find(half)) is not None:
            return recent
        found = read_one(self.log, HALF_TOPIC, halves.QUEUE, half.queue_offset)
        if found is not None:
            seen = halves.read_half(found)
            if seen is None or (seen.key, seen.physical_offset) != (
                transaction.key,
                half.physical_offset,
            ):
                raise self._lost_touch(f"another half message stands at {half.queue_offset}")
            return found
        if (kept := loading.kept_copy(self.log, half)) is not None:
            return kept
        raise TransactionGone(
            f"the half message of transaction {transaction.key} cannot be read any more; it can "
            "only be rolled back"
        )

    def has_content(self, transaction: Transaction) -> bool:
        """Whether memory has the content of all its parts."""
        return all(self._recent.find(half) is not None for half in transaction.halves)

    def note_halves(self, records: Sequence[NewRecord], placed: Sequence[Placement]) -> None:
        """Half messages of one transaction were stored."""
        for record, place in zip(records, placed, strict=True):
            stored = Stored(
                record, place.queue_offset, place.physical_offset, place.store_timestamp_ms
            )
            half = halves.read_half(stored)
            assert half is not None, "it was made here"
            self._recent.keep(half, stored)
            transaction = self.state.add_half(half)
        self.schedule.begin(transaction)

    def settle(self, transaction: Transaction, decision: Decision) -> None:
        """A decision was stored: nobody is to be asked any more."""
        self.state.settle(transaction, decision)
        self.counts.settled(transaction, decision.verdict, self.clock.now_ms())
        self.schedule.drop(transaction)
        self._recent.drop(transaction.halves)

    def note_ops(
        self, ops: Sequence[NewRecord], placed: Sequence[Placement], decision: Decision
    ) -> None:
        """Op records of one decision were stored."""
        for op, place in zip(ops, placed, strict=True):
            resolution = Resolution(place.queue_offset, place.physical_offset, decision)
            self.state.add_op(resolution, halves.offsets_in(op.body))

    def fill_up(self) -> None:
        """Let no half message get a queue offset that an op record names already. Raises as
        ``append``."""
        state = self.state
        missing = state.named_end - state.half_end
        if missing > FILLED_MAX:
            _log.error("op records name %d half messages that there are not", missing)
            return
        for first in range(state.half_end, state.named_end, FILLED_AT_ONCE):
            self._fill(first, min(first + FILLED_AT_ONCE, state.named_end))

    def _fill(self, first: int, end: int) -> None:
        """An op record names the fillers too, as a broker would check those that none names."""
        state, standing, now_ms = self.state, self.standing, self.clock.now_ms()
        host, store_format, new_key = standing.host, standing.store_format, self.keys.next
        places = range(first, end)
        fillers = [halves.filler_of(host, new_key(), now_ms) for _ in places]
        decision = Decision(Verdict.ROLLBACK, now_ms, halves.FILLER)
        ops = halves.ops_of(places, "", decision, host, new_key(), store_format)

        def note(placed: list[Placement]) -> None:
            state.half_end = end
            self.note_ops(ops, placed[len(fillers) :], decision)

        self.append([Group(fillers + ops, note)])

    def append(self, groups: Sequence[Group]) -> None:
        """Follow ``appended``. Raises LogRefused, LogUnavailable, NotLoaded."""
        self.follow(self.appended(groups))

    def append_apart(self, groups: Iterable[Group]) -> list[LogRefused]:
        """Append groups that need not stand together, some at a time, and each by itself where the
        store refuses several; why it refused some. Raises LogUnavailable, NotLoaded."""
        refused: list[LogRefused] = []
        for run in _runs(groups):
            refused += self.follow(self._refused(dict(enumerate(run)))).values()
        return refused

    def follow(self, steps: Steps[T]) -> T:
        """Take the steps, waiting for each append. Raises what they raise."""
        try:
            append = next(steps)
            while True:
                try:
                    placed = self.log.append(append.records)
                except CoordinatorError as error:
                    append = steps.throw(error)
                else:
                    append = steps.send(placed)
        except StopIteration as end:
            found: T = end.value
            return found

    def appended(self, groups: Sequence[Group]) -> Steps[None]:
        """One contiguous append; whatever its answer leaves unclear is found out by loading.

        Raises LogRefused, LogUnavailable, NotLoaded.
        """
        records = [record for group in groups for record in group.records]
        if not records:
            return
        state = self.state
        expected = {(HALF_TOPIC, 0): state.half_end, (OP_TOPIC, 0): state.op_end}
        try:
            placed = yield Append(records, [key for group in groups for key in group.absent])
        except LogUnavailable:
            self.appends_failing.failed()
            self.forget()
            raise
        self.appends_failing.over()
        self.counts.batches.observe(len(groups))
        begin = 0
        for group in groups:
            end = begin + len(group.records)
            group.then(placed[begin:end])
            begin = end
        self._check_offsets(records, placed, expected)
        if any(group.is_unclear for group in groups):
            self.forget()

    def plans_appended(self, plans: Sequence[Plan[Any]]) -> Steps[None]:
        """Append what all of them need together, each group by itself where the store refuses that,
        and note each one's result. Raises LogUnavailable."""
        groups = {
            (number, index): group
            for number, plan in enumerate(plans)
            for index, group in plan.groups.items()
        }
        refused = yield from self._refused(groups)
        for number, index in groups:
            plan, error = plans[number], refused.get((number, index))
            plan.results[index] = attempt(partial(plan.stored, index)) if error is None else error
        for plan in plans:
            for index, result in enumerate(plan.results):
                if result is None:
                    plan.results[index] = attempt(partial(plan.repeated, index))

    def _refused(self, groups: Mapping[K, Group]) -> Steps[dict[K, LogRefused]]:
        try:
            yield from self.appended(list(groups.values()))
        except LogRefused as error:
            if len(groups) == 1:
                return dict.fromkeys(groups, error)
            refused: dict[K, LogRefused] = {}
            for index, group in groups.items():
                refused |= yield from self._refused({index: group})
            return refused
        return {}

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
                    self.forget()
                    return
                expected[queue] += 1

    def _lost_touch(self, why: str) -> LogUnavailable:
        self.forget()
        return LogUnavailable(f"the store changed behind us ({why}); it is read again")


def _runs(groups: Iterable[Group]) -> Iterator[list[Group]]:
    """As many as go into one append."""
    run: list[Group] = []
    size = 0
    for group in groups:
        if run and (len(run) == RUN_MAX or size + group.size > RUN_SIZE_MAX):
            yield run
            run, size = [], 0
        run.append(group)
        size += group.size
    if run:
        yield run


def attempt(act: Callable[[], T]) -> T | CoordinatorError:
    """What ``act`` answers or raises; raises LogUnavailable, which concerns everybody."""
    try:
        return act()
    except LogUnavailable:
        raise
    except CoordinatorError as error:
        return error
