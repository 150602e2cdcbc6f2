"""The transactions in memory, and the one way to append to the log.

The log is the only state: when an append does not get the expected offsets, memory is discarded and
the log is read again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Generic, TypeVar

from mqstore.storage.codec.unique_keys import UniqueKeys
from mqstore.storage.errors import (
    FilePending,
    PutRefused,
    StorageError,
    StoreFailed,
    TransactionGone,
    TransactionsNotLoaded,
)
from mqstore.storage.layout import HALF_TOPIC, OP_TOPIC, TRANSACTION_MASK, SysFlag
from mqstore.storage.log.commit_log import Placement
from mqstore.storage.seams import Clock
from mqstore.storage.transactions import halves, loading
from mqstore.storage.transactions.counts import Counts
from mqstore.storage.transactions.halves import Decision, Half, Verdict
from mqstore.storage.transactions.log import TransactionLog
from mqstore.storage.transactions.records import LogRecord, NewRecord
from mqstore.storage.transactions.schedule import Schedule
from mqstore.storage.transactions.table import (
    Part,
    Resolution,
    Transaction,
    TransactionTable,
)

FILLED_MAX: Final = 10_000
"""Maximum number of half messages that fillers replace."""
FILLED_AT_ONCE: Final = 100
RUN_MAX: Final = 64
RUN_SIZE_MAX: Final = 4 << 20
"""Maximum number of groups in one append that need not be together, and bytes of their bodies and
properties."""
K = TypeVar("K", bound=Hashable)
T = TypeVar("T")
OnAppend = Callable[[Sequence[tuple[str, int]], float], None]
"""Called with the topic and the bytes in the log of each half message and committed message of an
append, and with the seconds that it took."""
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Group:
    """Records that belong together, and the function that notes them once they are stored."""

    records: list[NewRecord]
    then: Callable[[list[Placement]], None]
    is_unclear: bool = False
    """Whether the log has to be read again to learn whether it was stored."""

    @property
    def size(self) -> int:
        """Approximate bytes of bodies and properties."""
        return sum(
            len(each.body) + sum(map(len, each.properties.values())) for each in self.records
        )


@dataclass(slots=True)
class Plan(Generic[T]):
    """The groups that several callers need in one append, and the result of each."""

    results: list[T | StorageError | None]
    """None until known; complete after ``Ledger.append_plans``."""
    groups: dict[int, Group]
    """Groups to append, by the caller's number."""
    stored: Callable[[int], T]
    """Returns the result of a caller whose group was stored; may raise a StorageError."""
    repeated: Callable[[int], T]
    """Returns the result of a caller whose request duplicates another one."""

    @property
    def complete(self) -> list[T | StorageError]:
        """The results, once all groups were appended."""
        return [result for result in self.results if result is not None]


class Ledger:
    """The log, the transactions in memory, and the schedule of checks. One thread at a time."""

    def __init__(
        self, log: TransactionLog, clock: Clock, keys: UniqueKeys, schedule: Schedule
    ) -> None:
        self.log = log
        self.clock = clock
        self.keys = keys
        self.schedule = schedule
        self.counts = Counts()
        self.makes_files = True
        """Whether an append may wait for the creation of a file; otherwise it raises
        FilePending."""
        self.on_append: OnAppend = _ignore
        """See ``TransactionEngine.watch_appends``."""
        self._state: TransactionTable | None = None
        self._is_outdated = False

    @property
    def is_loaded(self) -> bool:
        """Whether the transactions are in memory."""
        return self._state is not None

    @property
    def known(self) -> TransactionTable | None:
        """The transactions; None while the log must be read."""
        return self._state

    @property
    def state(self) -> TransactionTable:
        """The transactions. Raises TransactionsNotLoaded."""
        if self._state is None:
            raise TransactionsNotLoaded("the half messages are being read; try again in a moment")
        return self._state

    def remember(self, state: TransactionTable) -> None:
        """Use the transactions that were read back from now on."""
        self._state = state

    def forget(self) -> None:
        """Discard the transactions: the log must be read again."""
        self._state = None
        self.schedule.clear()

    def content(self, transaction: Transaction, part: Part) -> LogRecord:
        """A record with a part's content: the newest copy of its half, or the copy that was set
        aside. Raises TransactionGone, TransactionsNotLoaded."""
        half, log = part.newest, self.log
        found = log.read_at_hand(half.physical_offset, half.record_size)
        if found is None:
            found = log.read_one(HALF_TOPIC, halves.QUEUE, half.queue_offset)
        if found is not None:
            seen = halves.read_half(found)
            if seen is None or (seen.key, seen.physical_offset) != (
                transaction.key,
                half.physical_offset,
            ):
                self.forget()
                raise TransactionsNotLoaded(
                    f"another half message is at {half.queue_offset}; the log is read again"
                )
            return found
        if (kept := loading.find_set_aside_copy(self.log, half)) is not None:
            return kept
        raise TransactionGone(
            f"the half message of transaction {transaction.key} cannot be read any more; it can "
            "only be rolled back"
        )

    def has_content(self, transaction: Transaction) -> bool:
        """Whether the half messages of all of its parts can be read without a wait."""
        return all(
            self.log.is_at_hand(half.physical_offset, half.record_size)
            for half in transaction.halves
        )

    def note_halves(self, records: Sequence[NewRecord], placed: Sequence[Placement]) -> None:
        """Note stored half messages of one transaction."""
        for record, place in zip(records, placed, strict=True):
            offsets = place.queue_offset, place.physical_offset
            half = halves.read_half(
                LogRecord(record, *offsets, place.store_timestamp_ms, place.size)
            )
            assert half is not None, "it was made here"
            transaction = self.state.add_half(half)
        self.schedule.begin(transaction)

    def note_half(self, half: Half) -> None:
        """Note a stored half message, and plan the first check of its transaction."""
        self.schedule.begin(self.state.add_half(half))

    def settle(self, transaction: Transaction, decision: Decision) -> None:
        """Note a stored decision: no check follows."""
        self.state.settle(transaction, decision)
        self.counts.note_settled(transaction, decision.verdict, self.clock.now_ms())
        self.schedule.drop(transaction)

    def note_ops(
        self, ops: Sequence[NewRecord], placed: Sequence[Placement], decision: Decision
    ) -> None:
        """Note stored op records of one decision."""
        for op, place in zip(ops, placed, strict=True):
            self.note_op(halves.offsets_in(op.body), place, decision)

    def note_op(self, half_offsets: Sequence[int], place: Placement, decision: Decision) -> None:
        """Note a stored op record, which names half messages at these queue offsets."""
        resolution = Resolution(place.queue_offset, place.physical_offset, decision)
        self.state.add_op(resolution, half_offsets)

    def fill_up(self) -> None:
        """Put fillers at queue offsets that op records name already, so that no half message gets
        them. Raises as ``append``."""
        state = self.state
        missing = state.named_end - state.half_end
        if missing > FILLED_MAX:
            _log.error("op records name %d half messages that there are not", missing)
            return
        for first in range(state.half_end, state.named_end, FILLED_AT_ONCE):
            self._fill(first, min(first + FILLED_AT_ONCE, state.named_end))

    def _fill(self, first: int, end: int) -> None:
        """Put fillers; an op record names them too, as a broker would check those without one."""
        state, now_ms = self.state, self.clock.now_ms()
        host, store_format, new_key = self.log.host, self.log.format, self.keys.next
        places = range(first, end)
        fillers = [halves.filler_of(host, new_key(), now_ms) for _ in places]
        decision = Decision(Verdict.ROLLBACK, now_ms, halves.FILLER)
        ops = halves.ops_of(places, "", decision, host, new_key(), store_format)

        def note(placed: list[Placement]) -> None:
            state.half_end = end
            self.note_ops(ops, placed[len(fillers) :], decision)

        self.append([Group(fillers + ops, note)])

    def append(self, groups: Sequence[Group]) -> None:
        """Append contiguously.

        Raises PutRefused, StoreFailed, TransactionsNotLoaded, and FilePending as ``makes_files``
        says; nothing was stored then.
        """
        self._append(groups)
        self._drop_outdated()

    def _append(self, groups: Sequence[Group]) -> None:
        records = [record for group in groups for record in group.records]
        if not records:
            return
        state = self.state
        expected = {(HALF_TOPIC, 0): state.half_end, (OP_TOPIC, 0): state.op_end}
        began = self.clock.monotonic()
        placed = self.log.append(records, makes_files=self.makes_files)
        self.note_append(
            [
                (record.topic, place.size)
                for record, place in zip(records, placed, strict=True)
                if _is_message(record)
            ],
            *(self.clock.monotonic() - began, len(groups)),
        )
        begin = 0
        for group in groups:
            end = begin + len(group.records)
            group.then(placed[begin:end])
            begin = end
        self._is_outdated |= not _are_as_expected(records, placed, expected)
        if any(group.is_unclear for group in groups):
            self.forget()

    def _drop_outdated(self) -> None:
        """Discard the transactions after an append whose offsets were not those expected, once its
        results are known: what was stored is reported as stored."""
        if self._is_outdated:
            self._is_outdated = False
            _log.error("half or op queues have other records; the log is read again")
            self.forget()

    def note_append(self, messages: Sequence[tuple[str, int]], seconds: float, groups: int) -> None:
        """Count an append of so many groups; ``messages`` as of ``OnAppend``."""
        self.on_append(messages, seconds)
        self.counts.batches.observe(groups)

    def append_apart(self, groups: Iterable[Group]) -> list[PutRefused]:
        """Append groups that need not be together, several at a time, and each by itself where the
        store rejects several; returns the rejections. Raises as ``append``."""
        refused: list[PutRefused] = []
        for run in _runs(groups):
            refused += self._append_all(dict(enumerate(run))).values()
        self._drop_outdated()
        return refused

    def append_plans(self, plans: Sequence[Plan[Any]]) -> None:
        """Append the groups of all plans together, each by itself where the store rejects that, and
        note the results. Raises StoreFailed, FilePending."""
        groups = {
            (number, index): group
            for number, plan in enumerate(plans)
            for index, group in plan.groups.items()
        }
        refused = self._append_all(groups)
        for number, index in groups:
            plan, error = plans[number], refused.get((number, index))
            plan.results[index] = attempt(partial(plan.stored, index)) if error is None else error
        for plan in plans:
            for index, result in enumerate(plan.results):
                if result is None:
                    plan.results[index] = attempt(partial(plan.repeated, index))
        self._drop_outdated()

    def _append_all(self, groups: Mapping[K, Group]) -> dict[K, PutRefused]:
        """Append all groups; returns the rejections."""
        try:
            self._append(list(groups.values()))
        except PutRefused as error:
            if len(groups) == 1:
                return dict.fromkeys(groups, error)
            refused: dict[K, PutRefused] = {}
            for index, group in groups.items():
                refused |= self._append_all({index: group})
            return refused
        return {}


def _are_as_expected(
    records: Sequence[NewRecord],
    placed: Sequence[Placement],
    expected: dict[tuple[str, int], int],
) -> bool:
    """Whether half and op queues grew only by these records; otherwise memory is wrong."""
    for record, place in zip(records, placed, strict=True):
        queue = record.topic, record.queue_id
        if queue in expected:
            if place.queue_offset != expected[queue]:
                return False
            expected[queue] += 1
    return True


def _runs(groups: Iterable[Group]) -> Iterator[list[Group]]:
    """The groups of each append."""
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


def attempt(act: Callable[[], T]) -> T | StorageError:
    """Return the result of ``act``, or its StorageError; raises StoreFailed and FilePending, which
    concern all callers."""
    try:
        return act()
    except (StoreFailed, FilePending):
        raise
    except StorageError as error:
        return error


def _is_message(record: NewRecord) -> bool:
    """Whether it is a half message or a committed message."""
    is_committed = record.sys_flag & TRANSACTION_MASK == SysFlag.TRANSACTION_COMMIT
    return is_committed or record.topic == HALF_TOPIC


def _ignore(messages: Sequence[tuple[str, int]], seconds: float) -> None:
    return
