"""A process that writes to a real store until it is killed, and tells what was acknowledged."""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

from mqstore.storage.codec.record import Message
from mqstore.storage.layout import StoreFormat
from mqstore.storage.log.commit_log import CommitLog
from mqstore.storage.message_store import MessageStore, StoreOptions
from mqstore.storage.seams import Seams
from mqstore.storage.system.threads import production_seams
from tests.simulation.driver import CONFIG, POOLED, Driver, Player
from tests.simulation.model import QueueKey

ANY_DISK: Final = {"disk_space_warning_level_ratio": 100, "disk_space_clean_forcibly_ratio": 100}
"""However full the disk is that tests run on."""
Event = tuple[str, tuple[Any, ...], dict[str, Any]]
"""A method of the model, and what to call it with."""


@dataclass
class Teller:
    """A journal on the other end of a pipe: what was sent is there whatever befalls us."""

    pipe: Connection
    log: CommitLog
    told: int
    """The log's bytes below this offset were sent."""

    def _tell(self, name: str, *arguments: Any, **named: Any) -> None:
        self.pipe.send((name, arguments, named))

    def expect(self, messages: Sequence[Message]) -> None:
        self._tell("expect", list(messages))

    def stored(self, end: int) -> None:
        self._tell("take", self._bytes_up_to(end), self.told)
        self.told = end

    def _bytes_up_to(self, end: int) -> bytes:
        return b"".join(
            bytes(file.view[max(0, self.told - file.base_offset) : end - file.base_offset])
            for file in self.log.files.files
            if file.end_offset > self.told and file.base_offset < end
        )

    def refused(self) -> None:
        self._tell("refused")

    def promise(self, end: int) -> None:
        self._tell("promise", end)

    def expire_up_to(self, offset: int) -> None:
        self._tell("expire_up_to", offset)

    def expired(self, min_offset: int) -> None:
        self._tell("expired", min_offset)

    def topic(self, name: str, queues: int, *, done: bool) -> None:
        self._tell("topic", name, queues, done=done)

    def consume(self, key: QueueKey, offset: int, *, done: bool) -> None:
        self._tell("consume", key, offset, done=done)


def open_real(
    root: Path, store_format: StoreFormat, seams: Seams, *, pooled: bool = False
) -> MessageStore:
    config = (POOLED if pooled else CONFIG).model_copy(update=ANY_DISK)
    return MessageStore.open(root, config, seams, StoreOptions(format=store_format))


def write(root: Path, store_format: StoreFormat, seed: int, first: int, pipe: Connection) -> None:
    """Runs until it is killed; for every other seed through a TransientStorePool."""
    logging.disable(logging.CRITICAL)
    seams = production_seams()
    store = open_real(root, store_format, seams, pooled=seed % 2 == 1)
    driver = Driver(store, Teller(pipe, store.log, store.log.max_offset), seams)
    player = Player(random.Random(seed))
    player.next_number = first
    while True:
        player.play(driver)
