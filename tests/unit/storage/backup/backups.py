"""Backups of small stores in a directory, for tests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from mqstore.storage.backup import (
    Backup,
    Created,
    Creation,
    Cut,
    DirectoryObjects,
    Flaw,
    Objects,
    Repository,
    Restoration,
    Restored,
    choose,
    flaws_of,
)
from mqstore.storage.message_store import MessageStore
from mqstore.storage.seams import Seams
from mqstore.storage.system.threads import production_seams


class Clock:
    """The real clocks, set forward by the test."""

    def __init__(self) -> None:
        self._real = production_seams().clock
        self.ahead_s = 0.0

    def now_ms(self) -> int:
        return self._real.now_ms() + round(self.ahead_s * 1000)

    def monotonic(self) -> float:
        return self._real.monotonic() + self.ahead_s


class WatchedObjects:
    """Objects of a directory; each change is first reported to the test."""

    def __init__(self, place: Path, on_change: Callable[[str, str], None]) -> None:
        self._objects = DirectoryObjects(production_seams().files, place)
        self._on_change = on_change
        self.place = str(place)

    def sizes(self, folder: str) -> dict[str, int]:
        return self._objects.sizes(folder)

    def read(self, name: str) -> Iterator[bytes]:
        return self._objects.read(name)

    def write(self, name: str, size: int, pieces: Iterable[bytes]) -> None:
        self._on_change("write", name)
        self._objects.write(name, size, pieces)

    def remove(self, name: str) -> None:
        self._on_change("remove", name)
        self._objects.remove(name)

    def clear_remains(self, folder: str) -> None:
        self._objects.clear_remains(folder)


def seams_with(**changes: Any) -> Seams:
    return replace(production_seams(), **changes)


def repository(
    place: Path, objects: Objects | None = None, seams: Seams | None = None
) -> Repository:
    seams = seams or production_seams()
    return Repository(objects or DirectoryObjects(seams.files, place), seams)


def back_up(
    root: Path, place: Path, objects: Objects | None = None, *, dry_run: bool = False
) -> Created:
    found = repository(place, objects)
    return Creation(root, found, production_seams()).run(dry_run=dry_run)


def put_back(
    place: Path,
    target: Path,
    *,
    backup: Backup | None = None,
    offset: int | None = None,
    ms: int | None = None,
    replace: bool = False,
) -> Restored:
    found, cut = repository(place), Cut.at(offset, ms)
    chosen = backup or choose(found, cut)
    return Restoration(found, chosen, target, production_seams(), cut=cut).run(replace=replace)


def flaws(place: Path) -> list[Flaw]:
    found = repository(place)
    assert all(each.backup is not None for each in found.listed())
    return list(flaws_of(found, found.whole(), production_seams(), lambda *_: None))


def messages(store: MessageStore, topic: str = "T") -> dict[tuple[int, int], bytes]:
    """Bodies by queue and queue offset of all messages that the log still has."""
    return {
        (queue.queue_id, index): store.log.record_at(entry.physical_offset).body
        for queue in store.queues.of_topic(topic)
        for index, entry in queue.entries(queue.min_index, queue.max_index)
    }
