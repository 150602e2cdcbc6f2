"""A store on a simulated machine and its transaction engine, one process after another."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

import pytest

from mqstore.storage.codec import properties
from mqstore.storage.codec.record import Message, Record
from mqstore.storage.codec.unique_keys import UniqueKeys
from mqstore.storage.config import StoreConfig
from mqstore.storage.errors import StorageError, TopicUnknown
from mqstore.storage.layout import HALF_TOPIC, OP_TOPIC, TRANSACTION_GROUP, StoreFormat
from mqstore.storage.log.commit_log import Placement
from mqstore.storage.transactions import (
    Begin,
    BeginResult,
    CheckSent,
    Decide,
    DecisionResult,
    NewRecord,
    Rules,
    State,
    TransactionEngine,
    TransactionSnapshot,
    Verdict,
)
from tests.simulation import Loss
from tests.simulation.delayed_store import CONFIG, DelayedStore

GROUP: Final = "producers"
TOPIC: Final = "T"
QUEUE_ID: Final = 3
ALWAYS_MS: Final = 1 << 60
RULES: Final = Rules(transaction_timeout_ms=6_000, check_interval_ms=60_000, check_max=3)


class Bench:
    """The engine is stepped by the test; ``restart`` is the next process."""

    def __init__(
        self,
        store_format: StoreFormat = StoreFormat.V4_9,
        rules: Rules = RULES,
        config: StoreConfig = CONFIG,
    ) -> None:
        self.world = DelayedStore(store_format=store_format, config=config)
        self.rules = rules
        self.engine = self.start()

    def start(self) -> TransactionEngine:
        """A loaded engine over the open store."""
        seams = self.world.machine.seams
        self.engine = TransactionEngine(self.world.store, seams, UniqueKeys(seams), self.rules)
        self.step()
        return self.engine

    def restart(self, loss: Loss | None = None) -> TransactionEngine:
        """The next process, after the last one was killed or the machine lost its power."""
        disk = self.world.machine.disk
        self.world.restart(disk.kill() if loss is None else disk.power_cut(1, loss))
        return self.start()

    def step(self, seconds: float = 0.0) -> float:
        """Let time pass, then step; the time of the next step."""
        self.world.run(seconds)
        return self.engine.step(self.world.machine.clock.monotonic())

    # what producers and operators do

    def message(self, key: str, topic: str = TOPIC, queue_id: int = QUEUE_ID) -> NewRecord:
        born_ms = self.world.machine.clock.now_ms()
        table = {"UNIQ_KEY": key, "TAGS": "a"}
        return NewRecord(topic, queue_id, key.encode(), table, "10.0.0.1:99", born_ms)

    def request(self, *keys: str, may_repeat: bool = True) -> Begin:
        return Begin(GROUP, [self.message(key) for key in keys], may_repeat)

    def try_begin(self, begin: Begin) -> BeginResult | StorageError:
        (result,) = self.engine.take([begin], ())[0]
        return result

    def begin(self, *keys: str) -> BeginResult:
        result = self.try_begin(self.request(*keys))
        assert isinstance(result, BeginResult), result
        return result

    def try_decide(
        self, key: str, verdict: Verdict, *, by_hand: bool = False
    ) -> DecisionResult | StorageError:
        (result,) = self.engine.take((), [Decide(key, verdict, "producer", by_hand)])[1]
        return result

    def commit(self, key: str, *, by_hand: bool = False) -> DecisionResult:
        result = self.try_decide(key, Verdict.COMMIT, by_hand=by_hand)
        assert isinstance(result, DecisionResult), result
        return result

    def roll_back(self, key: str) -> DecisionResult:
        result = self.try_decide(key, Verdict.ROLLBACK)
        assert isinstance(result, DecisionResult), result
        return result

    def check(self) -> list[str]:
        """Check the transactions that are due; keys of those that were counted."""
        leased = self.engine.lease(None, 100)
        return self.engine.count_checks([CheckSent(each.key, "producer", None) for each in leased])

    def check_until_set_aside(self) -> None:
        self.step(7)
        for _ in range(self.rules.check_max):
            self.check()
            self.step(61)

    # what is there

    def snapshots(self, state: State) -> list[TransactionSnapshot]:
        return self.engine.snapshots([state], None, ALWAYS_MS)

    def keys(self, state: State = State.PENDING) -> list[str]:
        return [each.key for each in self.snapshots(state)]

    def records(self, topic: str, queue_id: int = 0) -> list[Record]:
        return self.world.records(topic, queue_id)

    def bodies(self, topic: str = TOPIC, queue_id: int = QUEUE_ID) -> list[bytes]:
        return [found.body for found in self.records(topic, queue_id)]

    def saved(self) -> tuple[int | None, int | None]:
        """Saved offsets of the half queue and the op queue."""
        found: dict[str, int | None] = {}
        for topic in (HALF_TOPIC, OP_TOPIC):
            with suppress(TopicUnknown):
                (queue,) = self.world.store.offsets.of(TRANSACTION_GROUP, topic)
                found[topic] = queue.committed
        return found.get(HALF_TOPIC), found.get(OP_TOPIC)

    # what others write

    def append(self, records: Sequence[NewRecord]) -> list[Placement]:
        """Append records as a broker would, unseen by the engine; contiguous."""
        return append_records(self.world, records)


def append_records(world: DelayedStore, records: Sequence[NewRecord]) -> list[Placement]:
    return world.store.append([message_of(world, each) for each in records])[0]


def message_of(world: DelayedStore, record: NewRecord) -> Message:
    """The record as a store takes it."""
    store = world.store
    separator = store.format.trailing_property_separator
    return Message(
        record.topic,
        record.queue_id,
        record.body,
        properties.encode(record.properties, trailing_separator=separator),
        store.host,
        store.host,
        record.born_timestamp_ms,
        record.flag,
        record.sys_flag,
        record.reconsume_times,
        record.prepared_transaction_offset,
    )


class Calls:
    """Counts the calls of a method."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        """How many items the first argument of each call had."""

    @property
    def count(self) -> int:
        return len(self.sizes)


@contextmanager
def counted(of: object, *names: str) -> Iterator[Calls]:
    """Count the calls of an object's methods while the context lasts."""
    calls = Calls()
    with pytest.MonkeyPatch.context() as patch:
        for name in names:
            patch.setattr(of, name, _counting(calls, getattr(of, name)))
        yield calls


def _counting(calls: Calls, method: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any, **named: Any) -> Any:
        first = arguments[0] if arguments else ()
        calls.sizes.append(len(first) if isinstance(first, Sequence) else 1)
        return method(*arguments, **named)

    return call
