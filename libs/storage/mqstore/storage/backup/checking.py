"""Verifies backups: reads every object and compares it with its manifest. Changes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mqstore.storage.backup.errors import BackupDamaged
from mqstore.storage.backup.manifest import Backup, StoredObject
from mqstore.storage.backup.repository import Repository
from mqstore.storage.progress import Progress


@dataclass(frozen=True, slots=True)
class Flaw:
    """A damaged object, and the backups that need it."""

    name: str
    why: str
    backups: tuple[str, ...]


def flaws_of(
    repository: Repository, backups: Sequence[Backup], progress: Progress
) -> Iterator[Flaw]:
    """Read all objects of some backups, each once, and yield those that are damaged.

    Raises OSError when the place cannot be read.
    """
    objects: dict[StoredObject, list[Backup]] = {}
    for backup in backups:
        for each in backup.objects():
            key = StoredObject(name=each.name, size=each.size, crc32c=each.crc32c)
            objects.setdefault(key, []).append(backup)
    total, done = sum(each.size for each in objects), 0
    for each, users in objects.items():
        ids = tuple(user.id for user in users)
        try:
            for piece in repository.pieces(each):
                done += len(piece)
                progress("verifying", done, total)
            if each.name == users[0].tables.name:
                repository.tables(users[0])
        except BackupDamaged as error:
            yield Flaw(each.name, str(error), ids)
    for backup in backups:
        yield from _gaps_in(backup)


def _gaps_in(backup: Backup) -> Iterator[Flaw]:
    """Parts of a segment that do not follow each other: no backup of ours has such."""
    for segment in backup.segments:
        position = 0
        for part in segment.parts:
            if part.start != position:
                why = f"{part.name} begins at {part.start} of its segment, not at {position}"
                yield Flaw(part.name, why, (backup.id,))
            position = part.stop
