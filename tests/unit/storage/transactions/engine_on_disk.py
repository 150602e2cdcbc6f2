"""A transaction engine over a store on a real disk, used by several threads."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from mqstore.storage.codec.unique_keys import UniqueKeys
from mqstore.storage.message_store import MessageStore
from mqstore.storage.system.threads import production_seams
from mqstore.storage.transactions import Begin, NewRecord, Rules, TransactionEngine
from tests.unit.storage.stores import bodies, open_store

WAIT_S: Final = 30.0
"""How long a test waits for an event that must come."""
HOUR_MS: Final = 3_600_000
TOPIC: Final = "T"
QUIET: Final = Rules(transaction_timeout_ms=HOUR_MS)


@dataclass(frozen=True)
class Side:
    """One opening of the store."""

    store: MessageStore
    engine: TransactionEngine

    def request(
        self, *keys: str, topic: str = TOPIC, queue_id: int = 0, may_repeat: bool = True
    ) -> Begin:
        now_ms = time.time_ns() // 1_000_000
        messages = [
            NewRecord(topic, queue_id, key.encode(), {"UNIQ_KEY": key}, "10.0.0.1:99", now_ms)
            for key in keys
        ]
        return Begin("producers", messages, may_repeat)

    def step(self) -> None:
        self.engine.step(time.monotonic())

    def visible(self) -> Counter[bytes]:
        """How often a consumer sees each body."""
        return Counter(bodies(self.store, topic=TOPIC))

    @property
    def end(self) -> int:
        return self.store.log.max_offset


@contextmanager
def opened(root: Path, rules: Rules = QUIET, *, waits_for_files: bool = True) -> Iterator[Side]:
    """A loaded engine whose step is the test's."""
    seams = production_seams()
    with open_store(root, waits_for_files=waits_for_files) as store:
        side = Side(store, TransactionEngine(store, seams, UniqueKeys(seams), rules))
        side.step()
        yield side
        side.engine.leave()


class Blocked:
    """A gate at which a call waits until the test opens it."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.go_on = threading.Event()

    def wrap(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            self.reached.set()
            assert self.go_on.wait(WAIT_S), "the test lets no call go on"
            return method(*arguments, **named)

        return call


@contextmanager
def blocked(of: object, name: str) -> Iterator[Blocked]:
    """Every call of the method waits while the context lasts."""
    gate = Blocked()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(of, name, gate.wrap(getattr(of, name)))
        try:
            yield gate
        finally:
            gate.go_on.set()
