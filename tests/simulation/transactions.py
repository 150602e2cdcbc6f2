"""Producers with transactions on a simulated machine: what each decided, and what came of it."""

from __future__ import annotations

import errno
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from mqstore.coordinator.begin import Begin
from mqstore.coordinator.coordinator import Coordinator
from mqstore.coordinator.decide import Decide
from mqstore.coordinator.errors import (
    Contradicted,
    CoordinatorError,
    LogUnavailable,
    TransactionUnknown,
)
from mqstore.coordinator.halves import Verdict
from mqstore.coordinator.log import Kinds, LogPosition, QueueOffsets, Standing
from mqstore.coordinator.records import Key, Keyed, NewRecord, Page, Placement
from mqstore.coordinator.schedule import Rules
from mqstore.storage.codec.message_id import UniqueKeys
from mqstore.storage.config import FlushDiskType, StoreConfig
from mqstore.storage.errors import StorageError
from mqstore.storage.layout import StoreFormat
from tests.simulation import SimulatedMachine
from tests.simulation.delayed_store import DelayedStore
from tests.simulation.disk import SimulatedDisk
from tests.simulation.inode import Loss
from tests.simulation.store_log import StoreLog

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
ALL_DONE_S: Final = 30.0
CRASHES: Final = (None, *Loss)
"""A kill, and power cuts."""


@dataclass(slots=True)
class Planned:
    """One producer's transaction. ``wanted`` None: it never says, whoever asks."""

    key: str
    uniq_keys: tuple[str, ...]
    wanted: Verdict | None
    begun: bool = False
    """Acknowledged."""
    told: bool = False
    """Its decision was acknowledged."""
    asked: int = 0
    """Checks that reached it since the last power cut that may have taken their count."""
    torn: bool = False
    """A power cut may have taken any part of it, and who repeats is told what memory holds."""


@dataclass(slots=True)
class Plan:
    """What all producers know; survives every crash of ours."""

    transactions: list[Planned] = field(default_factory=list)

    def copy(self) -> Plan:
        return Plan([replace(each) for each in self.transactions])

    def power_cut(self) -> None:
        """What was acknowledged was not on disk: nobody counts on it any more."""
        for each in self.transactions:
            each.begun = each.told = False
            each.torn = True
            each.asked = 0


class _WorldClock:
    """The present machine's: a coordinator may outlive it."""

    def __init__(self, world: DelayedStore) -> None:
        self._world = world

    def now_ms(self) -> int:
        return self._world.machine.clock.now_ms()

    def monotonic(self) -> float:
        return self._world.machine.clock.monotonic()


class CoordinatorKilled(Exception):
    """The coordinator's process ended here."""


class BrittleLog:
    """A log whose answers get lost, and whose caller is killed, at any call's begin or end."""

    def __init__(self, inner: StoreLog, rng: random.Random, chance: float) -> None:
        self._inner = inner
        self._rng = rng
        self.chance = chance

    def take_over(self) -> Standing:
        self._boundary()
        found = self._inner.take_over()
        self._boundary()
        return found

    def append(self, records: Sequence[NewRecord]) -> list[Placement]:
        self._boundary()
        found = self._inner.append(records)
        self._boundary()
        return found

    def read(self, topic: str, queue_id: int, offset: int, count: int) -> Page:
        self._boundary()
        return self._inner.read(topic, queue_id, offset, count)

    def by_key(self, topic: str, key: str) -> Keyed:
        self._boundary()
        return self._inner.by_key(topic, key)

    def kinds(self, keys: Sequence[Key]) -> Kinds:
        self._boundary()
        return self._inner.kinds(keys)

    def sync(self) -> None:
        self._boundary()
        self._inner.sync()

    def position(self) -> LogPosition:
        return self._inner.position()

    def offsets(self) -> QueueOffsets:
        self._boundary()
        return self._inner.offsets()

    def save_offsets(self, offsets: QueueOffsets) -> None:
        self._boundary()
        self._inner.save_offsets(offsets)
        self._boundary()

    def _boundary(self) -> None:
        if self._rng.random() < self.chance:
            if self._rng.random() < 0.5:
                raise CoordinatorKilled
            raise LogUnavailable("the answer was lost")


class TransactionWorld:
    """A store, its coordinator and its producers, one process after another on one machine."""

    def __init__(
        self,
        seed: int,
        *,
        sync: bool = True,
        store_format: StoreFormat = StoreFormat.V4_9,
        machine: SimulatedMachine | None = None,
        plan: Plan | None = None,
        brittle: float = 0.0,
    ) -> None:
        self.rng = random.Random(seed)
        flush = FlushDiskType.SYNC if sync else FlushDiskType.ASYNC
        config = CONFIG.model_copy(update={"flush_disk_type": flush})
        self.world = DelayedStore(seed, config=config, store_format=store_format, machine=machine)
        self.plan = plan or Plan()
        self.brittle = brittle
        self.coordinator = self._coordinator()

    @property
    def disk(self) -> SimulatedDisk:
        return self.world.machine.disk

    def _coordinator(self) -> Coordinator:
        log = BrittleLog(StoreLog(lambda: self.world.store), self.rng, self.brittle)
        keys = UniqueKeys(self.world.machine.seams)
        return Coordinator(log, _WorldClock(self.world), keys, RULES)

    def restart_coordinator(self) -> None:
        self.coordinator = self._coordinator()

    def restart_store(self, disk: SimulatedDisk) -> None:
        """The next writer, on what the last one left; the coordinator starts anew, or knows nothing
        of it."""
        try:
            self.world.restart(disk)
        except (OSError, StorageError):
            disk.forgive()
            self.world.restart(disk.kill())
        if self.rng.random() < 0.5:
            self.restart_coordinator()

    # what producers do ----------------------------------------------------------------------

    def begin(self, count: int) -> None:
        number = len(self.plan.transactions)
        keys = tuple(f"t{number}-{index}" for index in range(count))
        wanted = self.rng.choice([Verdict.COMMIT, Verdict.COMMIT, Verdict.ROLLBACK, None])
        planned = Planned(keys[0], keys, wanted)
        self.plan.transactions.append(planned)
        self.begin_again(planned)

    def begin_again(self, planned: Planned) -> None:
        messages = [self.message(key) for key in planned.uniq_keys]
        (result,) = self.coordinator.begin([Begin(GROUP, messages)])
        if not isinstance(result, CoordinatorError):
            planned.begun = not planned.torn

    def message(self, key: str) -> NewRecord:
        born_ms = self.world.machine.clock.now_ms()
        table = {"UNIQ_KEY": key, "TAGS": "a"}
        return NewRecord("T", 3, key.encode(), table, HOST, born_ms)

    def decide(self, chosen: Sequence[Planned]) -> None:
        asked = [(each, each.wanted) for each in chosen if each.wanted is not None]
        results = self.coordinator.decide(
            [Decide(each.key, wanted, "producer") for each, wanted in asked]
        )
        for (planned, _), result in zip(asked, results, strict=True):
            if not isinstance(result, CoordinatorError):
                planned.told = not planned.torn
            elif isinstance(result, Contradicted):
                assert result.decision == Verdict.SET_ASIDE or not planned.begun

    def answer_checks(self) -> None:
        """Producers are asked, and say what they decided, if they do."""
        due = [each.key for each in self.coordinator.due()]
        self.coordinator.sending(due)
        for key in self.coordinator.sent(due):
            planned = next(each for each in self.plan.transactions if each.key == key)
            planned.asked += 1
            if planned.wanted is not None and self.rng.random() < 0.8:
                self.decide([planned])

    def step(self) -> float:
        return self.coordinator.step(self.world.machine.clock.monotonic())

    def finish(self) -> None:
        """Let everything come to its end, in a time in which nothing fails any more."""
        self.brittle = 0.0
        self.disk.before_effect = None
        self.disk.forgive()
        if self.world.store.failure is not None:
            self.restart_store(self.disk.kill())
        self.restart_coordinator()
        clock = self.world.machine.clock
        deadline = clock.monotonic() + ALL_DONE_S
        while clock.monotonic() < deadline:
            self.step()
            self.answer_checks()
            self.world.run(0.5)

    def visible(self) -> list[str]:
        """What a consumer reads."""
        log = StoreLog(lambda: self.world.store)
        return [found.record.body.decode() for found in log.read("T", 3, 0, 1_000).records]

    # what must hold -------------------------------------------------------------------------

    def check(self) -> None:
        """Nothing is left over, each message is visible as often as it should be."""
        state = self.coordinator.state
        assert not state.pending, f"forgotten: {list(state.pending)}"
        visible = Counter(self.visible())
        for planned in self.plan.transactions:
            counts = {visible[key] for key in planned.uniq_keys}
            assert max(counts) <= 1, f"{planned.key} is visible again: {visible}"
            if not planned.torn:
                assert len(counts) == 1, f"{planned.key} is visible in part: {visible}"
            count = min(counts)
            verdict = self._verdict(planned.key)
            if max(counts):
                assert planned.wanted is Verdict.COMMIT, f"{planned.key} is visible"
            if planned.begun:
                self._check_kept(planned, count, verdict)
        assert all(each.asked <= RULES.check_max + 3 for each in self.plan.transactions)

    def _verdict(self, key: str) -> Verdict | None:
        try:
            decision = self.coordinator.find(key).decision
        except TransactionUnknown:
            return None
        assert decision is not None
        return decision.verdict

    def _check_kept(self, planned: Planned, count: int, verdict: Verdict | None) -> None:
        if planned.wanted is Verdict.COMMIT and planned.told:
            assert count == 1, f"{planned.key} was committed and is lost"
        if planned.wanted is Verdict.COMMIT:
            assert count == 1 or verdict is Verdict.SET_ASIDE, f"{planned.key} is lost: {verdict}"
        if planned.wanted is Verdict.ROLLBACK:
            assert verdict in (Verdict.ROLLBACK, Verdict.SET_ASIDE)


class TransactionLife:
    """A life with crashes at random; at crash points, copies of the disk are brought to the end."""

    def __init__(self, seed: int, *, examined: float = 0.0, brittle: float = 0.01) -> None:
        self.chance = random.Random(seed + 1)
        self.examined = examined
        self.sync = seed % 3 != 0
        self.format = list(StoreFormat)[seed % 2]
        self.at = TransactionWorld(seed, sync=self.sync, store_format=self.format, brittle=brittle)
        self.rng = self.at.rng
        self.states = 0
        self.found: AssertionError | None = None
        self._watch()

    def live(self, steps: int) -> None:
        for _ in range(steps):
            try:
                self._step()
            except CoordinatorKilled:
                self.at.restart_coordinator()
            except (CoordinatorError, OSError, StorageError):
                pass
            if self.at.world.store.failure is not None:
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
                at.restart_coordinator()
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
                at.begin_again(rng.choice(planned[-5:]))
            case number:
                at.step()
                if number < 17 or not planned:
                    at.begin(rng.choice([1, 1, 2, 3]))
                else:
                    at.decide(rng.choices(planned[-8:], k=rng.randint(1, 3)))

    def _restart(self, loss: Loss | None) -> None:
        if loss is not None and not self.sync:
            self.at.plan.power_cut()
        self.at.restart_store(crashed(self.at.disk, loss, self.rng))
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


def crashed(disk: SimulatedDisk, loss: Loss | None, rng: random.Random) -> SimulatedDisk:
    return disk.kill() if loss is None else disk.power_cut(rng.getrandbits(32), loss)
