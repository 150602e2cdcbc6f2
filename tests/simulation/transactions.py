"""Producers with transactions on a simulated machine: what each decided, and what came of it.

Store and transaction engine are one process, as in store-writer: a crash is the end of both.
"""

from __future__ import annotations

import errno
import random
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

from mqstore.service.transaction_structs import NewHalf
from mqstore.storage.codec.hosts import parse_host
from mqstore.storage.codec.unique_keys import UniqueKeys
from mqstore.storage.config import FlushDiskType, StoreConfig
from mqstore.storage.errors import (
    StorageError,
    TransactionDecided,
    TransactionsNotLoaded,
    TransactionUnknown,
)
from mqstore.storage.layout import StoreFormat
from mqstore.storage.message_store import MessageStore
from mqstore.storage.transactions import (
    Begin,
    CheckSent,
    Decide,
    NewRecord,
    Rules,
    State,
    Taken,
    TransactionEngine,
    Verdict,
    begin_reader,
)
from mqstore.storage.transactions.log import TransactionLog
from tests.simulation import SimulatedMachine
from tests.simulation.crashes import CRASHES, crashed
from tests.simulation.delayed_store import DelayedStore
from tests.simulation.disk import SimulatedDisk
from tests.simulation.inode import Loss

CONFIG: Final = StoreConfig(
    mapped_file_size_commit_log=16 << 10,
    mapped_file_size_consume_queue=20 * 40,
    max_hash_slot_num=40,
    max_index_num=240,
)
RULES: Final = Rules(
    transaction_timeout_ms=1_000, check_interval_ms=2_000, check_max=3, carry_behind=12
)
GROUP: Final = "producers"
HOST: Final = "10.0.0.1:1234"
TOPIC: Final = "T"
QUEUE_ID: Final = 3
CHECKED_AT_ONCE: Final = 100
READ_AT_ONCE: Final = 1_000
ALL_DONE_S: Final = 30.0


@dataclass(slots=True)
class Planned:
    """One producer's transaction. ``wanted`` None: the producer answers no check."""

    key: str
    uniq_keys: tuple[str, ...]
    wanted: Verdict | None
    begun: bool = False
    """Acknowledged."""
    decided: bool = False
    """Its decision was acknowledged."""
    checked: int = 0
    """Checks counted since the last power cut that may have taken their count."""
    torn: bool = False
    """A power cut may have taken any part of it, and a repeat is answered from memory."""


@dataclass(slots=True)
class Plan:
    """The plan of all producers; it survives every crash."""

    transactions: list[Planned] = field(default_factory=list)

    def copy(self) -> Plan:
        return Plan([replace(each) for each in self.transactions])

    def power_cut(self) -> None:
        """Acknowledgements did not promise that anything is on disk: none counts any more."""
        for each in self.transactions:
            each.begun = each.decided = False
            each.torn = True
            each.checked = 0


class TransactionWorld:
    """A store with its engine, and its producers, one process after another on one machine."""

    def __init__(
        self,
        seed: int,
        *,
        sync: bool = True,
        store_format: StoreFormat = StoreFormat.V4_9,
        machine: SimulatedMachine | None = None,
        plan: Plan | None = None,
    ) -> None:
        self.rng = random.Random(seed)
        self.sync = sync
        flush = FlushDiskType.SYNC if sync else FlushDiskType.ASYNC
        config = CONFIG.model_copy(update={"flush_disk_type": flush})
        self.world = DelayedStore(seed, config=config, store_format=store_format, machine=machine)
        self.plan = plan or Plan()
        self.engine = self._start_engine()
        self.failed = False
        """The step raised an error, which ends a process."""

    @property
    def disk(self) -> SimulatedDisk:
        return self.world.machine.disk

    @property
    def store(self) -> MessageStore:
        return self.world.store

    def _start_engine(self) -> TransactionEngine:
        seams = self.world.machine.seams
        keys = UniqueKeys(seams)
        self._reader = begin_reader(keys)
        return TransactionEngine(self.store, seams, keys, RULES)

    def restart(self, disk: SimulatedDisk) -> None:
        """The next process, on what the last one left."""
        try:
            self.world.restart(disk)
        except (OSError, StorageError):
            disk.forgive()
            self.world.restart(disk.kill())
        self.engine = self._start_engine()
        self.failed = False

    def close(self) -> None:
        """End as a process does that is stopped. Raises StorageError."""
        self.engine.leave()
        self.store.close()

    # what producers do ----------------------------------------------------------------------

    def begin(self, count: int) -> None:
        number = len(self.plan.transactions)
        keys = tuple(f"t{number}-{index}" for index in range(count))
        wanted = self.rng.choice([Verdict.COMMIT, Verdict.COMMIT, Verdict.ROLLBACK, None])
        planned = Planned(keys[0], keys, wanted)
        self.plan.transactions.append(planned)
        self.begin_again(planned)

    def begin_again(self, planned: Planned) -> None:
        self.take([planned], [])

    def take(self, begins: Sequence[Planned], decisions: Sequence[Planned]) -> None:
        """Begin some transactions and decide others, in one call."""
        decided = [(each, each.wanted) for each in decisions if each.wanted is not None]
        begun, results = self._take(
            [Begin(GROUP, [self.message(key) for key in each.uniq_keys]) for each in begins],
            [Decide(each.key, wanted, "producer") for each, wanted in decided],
        )
        waits = self.rng.random() < 0.8  # else the client is gone before the log is on disk
        for planned, begin in zip(begins, begun, strict=True):
            if not isinstance(begin, StorageError) and waits:
                self._settle(begin.end)
                planned.begun = not planned.torn
        for (planned, _), result in zip(decided, results, strict=True):
            if isinstance(result, TransactionDecided):
                assert result.decision == Verdict.SET_ASIDE or not planned.begun
            elif not isinstance(result, StorageError) and waits:
                self._settle(result.end)
                planned.decided = not planned.torn

    def _take(self, begins: Sequence[Begin], decisions: Sequence[Decide]) -> Taken:
        """As an event loop with a thread for what it leaves."""
        taken = self._take_plain(begins, decisions) or self.engine.take_at_hand(begins, decisions)
        return self.engine.take(begins, decisions) if taken is None else taken

    def _take_plain(self, begins: Sequence[Begin], decisions: Sequence[Decide]) -> Taken | None:
        """One begin of one message, or one decision, in one call of the kernel."""
        match begins, decisions:
            case [Begin(messages=[message]) as begin], []:
                half = NewHalf(body=begin.key, uniq_key=begin.key, tags="a")
                born_ms = message.born_timestamp_ms
                request = self._reader.read(begin.group, TOPIC, half, born_ms)
                assert request is not None
                begun = self.engine.begin_plain(request, QUEUE_ID, parse_host(HOST))
                return None if begun is None else ([begun], [])
            case [], [decide]:
                decided = self.engine.decide_plain(decide.key, decide.verdict, decide.why)
                return None if decided is None else ([], [decided])
        return None

    def _settle(self, end: int) -> None:
        """Wait as store-writer does before it replies. Raises FlushTimeout, StoreFailed."""
        if self.sync:
            self.store.flush.wait(self.store.flush.request(end))

    def message(self, key: str) -> NewRecord:
        born_ms = self.world.machine.clock.now_ms()
        table = {"UNIQ_KEY": key, "TAGS": "a"}
        return NewRecord(TOPIC, QUEUE_ID, key.encode(), table, HOST, born_ms)

    def answer_checks(self) -> None:
        """Producers that can be reached answer what they decided, if they do. Raises
        TransactionsNotLoaded."""
        leased = [each.key for each in self.engine.lease(None, CHECKED_AT_ONCE)]
        reached = [key for key in leased if self.rng.random() < 0.9]
        self.engine.release(key for key in leased if key not in reached)
        counted = self.engine.count_checks([CheckSent(key, "p", None) for key in reached])
        self._settle(self.store.log.max_offset)
        for key in counted:
            planned = next(each for each in self.plan.transactions if each.key == key)
            planned.checked += 1
            if planned.wanted is not None and self.rng.random() < 0.8:
                self.take([], [planned])

    def step(self) -> None:
        """A step of the engine: it does not raise what is wrong with transactions."""
        try:
            self.engine.step(self.world.machine.clock.monotonic())
        except BaseException:
            self.failed = True
            raise

    def finish(self) -> None:
        """Let everything come to its end, in a time in which nothing fails any more."""
        self.disk.before_effect = None
        self.disk.forgive()
        self.restart(self.disk.kill())
        clock = self.world.machine.clock
        deadline = clock.monotonic() + ALL_DONE_S
        while clock.monotonic() < deadline:
            self.step()
            with suppress(TransactionsNotLoaded):  # the index is being made
                self.answer_checks()
            self.world.run(0.5)

    def visible(self) -> list[str]:
        """Messages that a consumer reads."""
        found = TransactionLog(self.store).read(TOPIC, QUEUE_ID, 0, READ_AT_ONCE).records
        return [each.record.body.decode() for each in found]

    # what must hold -------------------------------------------------------------------------

    def check(self) -> None:
        """Assert that nothing is left over, and each message is visible as often as planned."""
        assert self.engine.trouble is None, self.engine.trouble
        left = self.engine.pending_count
        assert not left, f"{left} transactions are forgotten"
        visible = Counter(self.visible())
        for planned in self.plan.transactions:
            counts = {visible[key] for key in planned.uniq_keys}
            assert max(counts) <= 1, f"{planned.key} is visible again: {visible}"
            if not planned.torn:
                assert len(counts) == 1, f"{planned.key} is visible in part: {visible}"
            if max(counts):
                assert planned.wanted is Verdict.COMMIT, f"{planned.key} is visible"
            if planned.begun:
                self._check_kept(planned, min(counts), self._state(planned.key))
        assert all(each.checked <= RULES.check_max + 3 for each in self.plan.transactions)

    def _state(self, key: str) -> State | None:
        try:
            return self.engine.find(key).state
        except TransactionUnknown:
            return None

    def _check_kept(self, planned: Planned, count: int, state: State | None) -> None:
        if planned.wanted is Verdict.COMMIT and planned.decided:
            assert count == 1, f"{planned.key} was committed and is lost"
        if planned.wanted is Verdict.COMMIT:
            assert count == 1 or state is State.SET_ASIDE, f"{planned.key} is lost: {state}"
        if planned.wanted is Verdict.ROLLBACK:
            assert state in (State.ROLLED_BACK, State.SET_ASIDE)


class TransactionLife:
    """A life with crashes at random; at crash points, copies of the disk are brought to the end."""

    def __init__(self, seed: int, *, examined: float = 0.0) -> None:
        """``examined``: the share of crash points that are examined."""
        self.chance = random.Random(seed + 1)
        self.examined = examined
        self.sync = seed % 3 != 0
        self.format = list(StoreFormat)[seed % 2]
        self.at = TransactionWorld(seed, sync=self.sync, store_format=self.format)
        self.rng = self.at.rng
        self.states = 0
        self.found: AssertionError | None = None
        self._watch()

    def live(self, steps: int) -> None:
        for _ in range(steps):
            with suppress(OSError, StorageError):
                self._step()
            if self.at.store.failure is not None or self.at.failed:
                self._restart(None)
        if self.found is not None:
            raise self.found
        self.at.finish()
        self.at.check()

    def _watch(self) -> None:
        self.at.disk.before_effect = self._crash_point

    def _step(self) -> None:
        at, rng = self.at, self.rng
        planned = at.plan.transactions
        match rng.randrange(24):
            case 0:
                self._restart(rng.choice(CRASHES))
            case 1:
                self._close()
            case 2:
                at.world.machine.clock.step(rng.randint(-3_000, 3_000))
            case 3:
                at.disk.fail_at(len(at.disk.trace) + rng.randrange(60), errno.EIO)
            case 4 | 5 | 6:
                at.world.run(rng.random() * 2)
                at.step()
            case 7 | 8 | 9:
                at.step()
                at.answer_checks()
            case 10 if planned:
                at.step()
                again = rng.choice(planned[-5:])
                at.take([again], rng.choices([again, *planned[-8:]], k=rng.randint(0, 2)))
            case number:
                at.step()
                if number < 17 or not planned:
                    at.begin(rng.choice([1, 1, 2, 3]))
                else:
                    at.take([], rng.choices(planned[-8:], k=rng.randint(1, 3)))

    def _close(self) -> None:
        try:
            self.at.close()
        finally:
            self._restart(None)

    def _restart(self, loss: Loss | None) -> None:
        if loss is not None and not self.sync:
            self.at.plan.power_cut()
        self.at.restart(crashed(self.at.disk, loss, self.rng))
        self._watch()

    def _crash_point(self) -> None:
        if self.found is not None or self.chance.random() >= self.examined:
            return
        loss = self.chance.choice(CRASHES)
        disk = crashed(self.at.disk, loss, self.chance)
        seed = self.chance.getrandbits(32)
        machine = SimulatedMachine(seed, clock=disk.clock, disk=disk)
        plan = self.at.plan.copy()
        if loss is not None and not self.sync:
            plan.power_cut()
        after = TransactionWorld(
            *(seed,),
            sync=self.sync,
            store_format=self.format,
            machine=machine,
            plan=plan,
        )
        self.states += 1
        try:
            after.finish()
            after.check()
        except AssertionError as error:
            self.found = error
            raise
