"""A process that writes to a real store until it is killed, and sends what was acknowledged."""

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
class PipedJournal:
    """A journal on the other end of a pipe: what was sent outlives a kill of this process."""

    pipe: Connection
    log: CommitLog
    sent_end: int
    """The log's bytes below this offset were sent."""

    def _send(self, name: str, *arguments: Any, **named: Any) -> None:
        self.pipe.send((name, arguments, named))

    def expect(self, messages: Sequence[Message]) -> None:
        self._send("expect", list(messages))

    def stored(self, end: int) -> None:
        self._send("take", self._bytes_up_to(end), self.sent_end)
        self.sent_end = end

    def _bytes_up_to(self, end: int) -> bytes:
        return b"".join(
            bytes(file.view[max(0, self.sent_end - file.base_offset) : end - file.base_offset])
            for file in self.log.files.files
            if file.end_offset > self.sent_end and file.base_offset < end
        )

    def refused(self) -> None:
        self._send("refused")

    def promise(self, end: int) -> None:
        self._send("promise", end)

    def expire_up_to(self, offset: int) -> None:
        self._send("expire_up_to", offset)

    def expired(self, min_offset: int) -> None:
        self._send("expired", min_offset)

    def topic(self, name: str, queues: int, *, done: bool) -> None:
        self._send("topic", name, queues, done=done)

    def consume(self, key: QueueKey, offset: int, *, done: bool) -> None:
        self._send("consume", key, offset, done=done)


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
    driver = Driver(store, PipedJournal(pipe, store.log, store.log.max_offset), seams)
    player = Player(random.Random(seed))
    player.next_number = first
    while True:
        player.play(driver)
