"""``store/mqstore/shared-groups.json``: what is acknowledged above the groups' offsets.

consumerOffset.json has one offset for each group and queue. This file has the messages behind that
offset that are not acknowledged, and the first offset never looked at: everything between them is
acknowledged. Without the file, or with a damaged one, these messages are delivered again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, NamedTuple

from pydantic import Field

from mqstore.storage.metadata import sealed_json
from mqstore.storage.metadata.sealed_json import StrictValue
from mqstore.storage.seams import FileSystem
from mqstore.storage.shared_groups.queue_leases import QueueLeases
from mqstore.storage.system.atomic_file import replace_file

log = logging.getLogger(__name__)


class Place(NamedTuple):
    """A group in one queue."""

    group: str
    topic: str
    queue_id: int


class SavedQueue(StrictValue):
    """The state of one queue with pending messages."""

    group: str
    topic: str
    queue: int
    next: int
    pending: tuple[tuple[int, int], ...]
    """Offset and attempts of each message, by offset."""


class _Saved(StrictValue):
    queues: tuple[SavedQueue, ...]
    settled_below: Annotated[int | None, Field(alias="settled_below")] = None
    """Physical offset below which each copy is of a message that is settled here; None in a file of
    an earlier release."""


def note(place: Place, leases: QueueLeases) -> SavedQueue:
    """Build the entry of the file for a queue."""
    return SavedQueue(
        group=place.group,
        topic=place.topic,
        queue=place.queue_id,
        next=leases.next,
        pending=tuple(leases.saved()),
    )


def encode(queues: Iterable[SavedQueue], settled_below: int) -> bytes:
    """Encode the states of queues."""
    saved = _Saved(queues=tuple(queues), settled_below=settled_below)
    return sealed_json.encode(saved)


def save(files: FileSystem, path: Path, content: bytes) -> None:
    """Replace the file; durable at return. Raises OSError."""
    replace_file(files, path, content)


def load(files: FileSystem, path: Path) -> tuple[dict[Place, QueueLeases], int | None]:
    """Load the states, whose ``committed`` is their floor, and the offset below which copies are
    settled; none from a file that cannot be read."""
    try:
        saved = sealed_json.read(files, path, _Saved) or _Saved(queues=(), settled_below=None)
        return dict(_restored(saved.queues)), saved.settled_below
    except (OSError, ValueError) as error:
        log.error("%s cannot be read, its messages are delivered again: %s", path, error)
        return {}, None


def _restored(queues: Iterable[SavedQueue]) -> Iterable[tuple[Place, QueueLeases]]:
    for each in queues:
        offsets = [offset for offset, _ in each.pending]
        if not offsets or offsets != sorted(set(offsets)) or offsets[-1] >= each.next:
            raise ValueError(f"pending offsets of {each.topic} are not in order below {each.next}")
        leases = QueueLeases(offsets[0], each.next)
        leases.restore(each.pending)
        yield Place(each.group, each.topic, each.queue), leases
