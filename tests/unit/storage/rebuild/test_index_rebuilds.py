"""An index rebuild beside the writer, on real files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mqstore.storage.message_store import MessageStore
from mqstore.storage.store_reader import StoreReader
from mqstore.storage.system.threads import production_seams
from tests.unit.storage.rebuild_job import RebuildJob
from tests.unit.storage.stores import message, open_store, put_some

COUNT = 300


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def store(root: Path) -> Iterator[MessageStore]:
    with open_store(root) as store:
        put_some(store, COUNT)
        yield store


def begin(store: MessageStore, lease_s: int = 60) -> RebuildJob:
    return RebuildJob(store, store.rebuilds.begin("a test", lease_s=lease_s))


def test_a_rebuild_takes_the_place_of_the_index_while_messages_are_put(
    root: Path, store: MessageStore
) -> None:
    before = [file.path.name for file in store.index.files]
    job = begin(store)
    for number in range(COUNT, COUNT + 100):
        store.put(message(store, number))
    job.fill()
    for number in range(COUNT + 100, COUNT + 200):
        store.put(message(store, number))
    published = job.publish()
    assert list(published.replaced) == before
    names = [file.path.name for file in store.index.files]
    assert names == sorted(names)
    assert names[: len(published.published)] == list(published.published)
    with StoreReader.open(root, production_seams()) as reader:
        for number in range(COUNT + 200):
            answer = reader.lookups.by_key("T", f"U{number:031d}")
            assert (len(answer.records), answer.complete) == (1, True)
            assert len(store.lookups.by_key("T", f"U{number:031d}").records) == 1
    assert job.publish() == published
