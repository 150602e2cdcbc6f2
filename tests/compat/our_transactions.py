"""Our transaction engine over a store in this process, beside a referee that has the same store."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from mqstore.storage.codec.unique_keys import UniqueKeys
from mqstore.storage.config import StoreConfig
from mqstore.storage.layout import HALF_TOPIC, OP_TOPIC, StoreFormat
from mqstore.storage.message_store import MessageStore, StoreOptions
from mqstore.storage.system.threads import production_seams
from mqstore.storage.transactions import (
    Begin,
    BeginResult,
    CheckSent,
    Decide,
    DecisionResult,
    NewRecord,
    Rules,
    State,
    StoredHalf,
    TransactionEngine,
    Verdict,
)
from mqstore.storage.transactions.log import TransactionLog

GROUP: Final = "billing"
TOPIC: Final = "orders"
QUEUES: Final = 4
ALWAYS_MS: Final = 1 << 60
AT_ONCE: Final = Rules(transaction_timeout_ms=0, check_interval_ms=0)


@dataclass
class OurSide:
    """One opening of the store."""

    engine: TransactionEngine
    log: TransactionLog
    keys: UniqueKeys

    def begin(self, *bodies: str) -> str:
        """Begin a transaction; its key."""
        records = [self._message(body) for body in bodies]
        (begun,), _ = self.engine.take([Begin(GROUP, records)], ())
        assert isinstance(begun, BeginResult), begun
        return begun.key

    def _message(self, body: str) -> NewRecord:
        table = {"TAGS": "paid", "KEYS": f"k-{body}", "UNIQ_KEY": self.keys.next()}
        born_ms = time.time_ns() // 1_000_000
        return NewRecord(TOPIC, 1, body.encode(), table, "127.0.0.1:40000", born_ms)

    def name_half(self, offset: int) -> None:
        """An op record that names a half which a power cut took, and others before it."""
        table = {"TAGS": "d", "UNIQ_KEY": self.keys.next()}
        born_ms = time.time_ns() // 1_000_000
        op = NewRecord(OP_TOPIC, 0, str(offset).encode(), table, "127.0.0.1:40000", born_ms)
        self.log.append([op], makes_files=True)

    def decide(self, key: str, verdict: Verdict, *, by_hand: bool = False) -> None:
        _, (decided,) = self.engine.take((), [Decide(key, verdict, "producer", by_hand)])
        assert isinstance(decided, DecisionResult), decided

    def state(self, key: str) -> State:
        return self.engine.find(key).state

    def pending(self) -> list[str]:
        return [each.key for each in self.engine.snapshots([State.PENDING], None, ALWAYS_MS)]

    def newest_halves(self, key: str) -> list[StoredHalf]:
        """The newest copy of each of a transaction's half messages."""
        copies = sorted(self.engine.find(key).halves, key=lambda half: half.queue_offset)
        return list({half.uniq_key: half for half in copies}.values())

    def first_half(self, key: str) -> int:
        """The queue offset of a transaction's oldest half message."""
        return min(half.queue_offset for half in self.engine.find(key).halves)

    def copies(self, key: str) -> list[int]:
        """The queue offsets of all half messages with this unique key."""
        found = self.log.read(HALF_TOPIC, 0, 0, 1_000).records
        return [each.queue_offset for each in found if each.record.properties["UNIQ_KEY"] == key]

    def check(self) -> list[str]:
        """Take the checks that are due; their keys."""
        self.engine.step(time.monotonic())
        leased = self.engine.lease(None, 100)
        return self.engine.count_checks([CheckSent(each.key, "producer", None) for each in leased])

    def save_progress(self) -> None:
        """As in the ten seconds in which it is computed and then saved."""
        for turn in range(2):
            self.log.sync()
            self.engine.step(time.monotonic() + 10 * (turn + 1))

    def check_times(self) -> dict[str, int]:
        """Check times of each pending transaction."""
        pending = self.engine.snapshots([State.PENDING], None, ALWAYS_MS)
        return {each.key: each.check_times for each in pending}

    def visible(self) -> Counter[str]:
        """How often a consumer sees each body."""
        pages = [self.log.read(TOPIC, queue, 0, 1_000) for queue in range(16)]
        return Counter(found.record.body.decode() for page in pages for found in page.records)


@contextlib.contextmanager
def opened(
    directory: Path, config: Mapping[str, Any], store_format: str, rules: Rules = AT_ONCE
) -> Iterator[OurSide]:
    """The store, with an engine that has read it; made when there is none."""
    settings = StoreConfig.model_validate(config)
    seams = production_seams()
    create = not directory.exists()
    options = StoreOptions(format=StoreFormat(store_format), create=create)
    with MessageStore.open(directory, settings, seams, options) as store:
        if create:
            store.create_topic(TOPIC, queues=QUEUES)
        keys = UniqueKeys(seams)
        side = OurSide(TransactionEngine(store, seams, keys, rules), TransactionLog(store), keys)
        side.engine.step(time.monotonic())
        assert side.engine.trouble is None, side.engine.trouble
        yield side
        side.engine.leave()
