"""Whole stores with mutated, cut and missing files: opened, recovered, read and verified."""

from __future__ import annotations

import logging
from pathlib import Path

from mqstore.storage.errors import StorageError, StoreFailed
from mqstore.storage.layout import StoreFormat
from mqstore.storage.message_store import MessageStore, StoreOptions
from mqstore.storage.system.overlay_files import OverlayFileSystem
from mqstore.storage.verify import Verification
from tests.fuzz import stores
from tests.fuzz.mutate import Mutator

NUMBERS_AT = range(0, 512, 4)


class WholeStores:
    """Everything stays in memory; only the store it began with lies on the disk."""

    def __init__(self, mutator: Mutator, root: Path) -> None:
        self._mutator = mutator
        self._root = root
        store_format = mutator.random.choice(list(StoreFormat))
        stores.make(root, store_format, close=mutator.random.random() < 0.5)
        found = [path for path in sorted(root.rglob("*")) if path.is_file()]
        self._contents = {path: path.read_bytes() for path in found if path.name != "lock"}
        logging.getLogger("mqstore").setLevel(logging.CRITICAL)

    def one(self) -> None:
        files = self._damaged()
        self._verify(files)
        options = StoreOptions(create=False, services=False)
        try:
            store = MessageStore.open(self._root, stores.CONFIG, stores.seams(files), options)
        except StorageError as error:
            assert str(error)
            return
        with store:
            try:
                store.wait_for_index()
                self._read(store)
            except StoreFailed as error:  # a queue at rest that is not as it was closed
                assert str(error)
        self._verify(files)

    def _damaged(self) -> OverlayFileSystem:
        draw, files = self._mutator.random, stores.overlay()
        for path in draw.sample(list(self._contents), draw.choice((1, 1, 1, 2, 3))):
            if draw.random() < 0.1:
                files.unlink(path)
                continue
            content = self._contents[path]
            last = max(len(content.rstrip(b"\0")) - 512, 0)
            numbers = [(base + at, 4) for base in (0, last) for at in NUMBERS_AT]
            changed = self._mutator.mutated(content, numbers, list(self._contents.values()))
            if draw.random() < 0.8:  # else with the length that came of it
                changed = changed.ljust(len(content), b"\0")[: len(content)]
            files.write(path, bytes(changed))
        return files

    def _read(self, store: MessageStore) -> None:
        """Assert that each served record is whole: its body has its own checksum."""
        for queue in store.lookups.topics():
            for bounds in store.lookups.queues(queue):
                self._pull(store, bounds.topic, bounds.queue_id, bounds.min_offset)
        for number in range(5):
            store.lookups.by_key("Topic", f"k{number}")

    def _pull(self, store: MessageStore, topic: str, queue_id: int, offset: int) -> None:
        for _ in range(10):
            pull = store.lookups.records(topic, queue_id, offset, count=100)
            if pull.next_offset <= offset:
                return
            offset = pull.next_offset

    def _verify(self, files: OverlayFileSystem) -> None:
        try:
            verification = Verification(self._root, stores.CONFIG, stores.seams(files))
            for finding in verification.findings():
                assert finding.what
                assert finding.broker
        except StorageError as error:
            assert str(error)
