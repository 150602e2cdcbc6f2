"""Our coordinator over a store in this process, beside a referee that has the same store."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from mqstore.coordinator.begin import Begin
from mqstore.coordinator.coordinator import Coordinator
from mqstore.coordinator.decide import Decide
from mqstore.coordinator.errors import CoordinatorError
from mqstore.coordinator.halves import Verdict
from mqstore.coordinator.log import Log
from mqstore.coordinator.records import NewRecord
from mqstore.coordinator.schedule import Rules
from mqstore.storage.codec.message_id import UniqueKeys
from mqstore.storage.config import StoreConfig
from mqstore.storage.layout import OP_TOPIC, StoreFormat
from mqstore.storage.message_store import MessageStore, StoreOptions
from mqstore.storage.system.threads import production_seams
from tests.compat.ours import ANY_DISK
from tests.simulation.store_log import StoreLog

GROUP: Final = "billing"
TOPIC: Final = "orders"
QUEUES: Final = 4
AT_ONCE: Final = Rules(transaction_timeout_ms=0, check_interval_ms=0)


@dataclass
class OurSide:
    """One opening of the store."""

    coordinator: Coordinator
    log: Log
    keys: UniqueKeys

    def begin(self, *bodies: str) -> str:
        """Begin a transaction; its key."""
        records = [self._message(body) for body in bodies]
        (begun,) = self.coordinator.begin([Begin(GROUP, records)])
        assert not isinstance(begun, CoordinatorError), begun
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
        self.log.append([op])

    def decide(self, key: str, verdict: Verdict, *, by_hand: bool = False) -> None:
        (decided,) = self.coordinator.decide([Decide(key, verdict, "producer", by_hand)])
        assert not isinstance(decided, CoordinatorError), decided

    def verdict(self, key: str) -> Verdict | None:
        decision = self.coordinator.find(key).decision
        return None if decision is None else decision.verdict

    def check(self) -> list[str]:
        """Take the checks that are due; their keys."""
        self.coordinator.step(time.monotonic())
        due = [each.key for each in self.coordinator.due()]
        self.coordinator.sending(due)
        return self.coordinator.sent(due)

    def save_progress(self) -> None:
        """As in the ten seconds in which it is computed and then saved."""
        for turn in range(2):
            self.log.sync()
            self.coordinator.step(time.monotonic() + 10 * (turn + 1))

    def check_times(self) -> dict[str, int]:
        """Of each pending transaction."""
        return {key: each.check_times for key, each in self.coordinator.state.pending.items()}

    def visible(self) -> Counter[str]:
        """How often a consumer sees each body."""
        pages = [self.log.read(TOPIC, queue, 0, 1_000) for queue in range(16)]
        return Counter(found.record.body.decode() for page in pages for found in page.records)


@contextlib.contextmanager
def opened(
    directory: Path, config: Mapping[str, Any], store_format: str, rules: Rules = AT_ONCE
) -> Iterator[OurSide]:
    """The store, with a coordinator that has read it; made when there is none."""
    settings = StoreConfig.model_validate({**ANY_DISK, **config})
    seams = production_seams()
    create = not directory.exists()
    options = StoreOptions(format=StoreFormat(store_format), create=create)
    with MessageStore.open(directory, settings, seams, options) as store:
        if create:
            store.create_topic(TOPIC, queues=QUEUES)
        keys = UniqueKeys(seams)
        log = StoreLog(lambda: store)
        side = OurSide(Coordinator(log, seams.clock, keys, rules), log, keys)
        side.coordinator.load()
        yield side
        side.coordinator.leave()
