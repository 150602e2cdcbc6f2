"""Verifies backups: proves what a restore needs, and compares every object with its manifest.

Changes nothing. A manifest is checked when it is read; the small files of a backup are opened as a
store in memory, as a restore opens them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from mqstore.storage.backup.errors import BackupDamaged
from mqstore.storage.backup.manifest import Backup, StoredObject
from mqstore.storage.backup.rehearsal import rehearse
from mqstore.storage.backup.repository import Repository
from mqstore.storage.progress import Progress
from mqstore.storage.seams import Seams


@dataclass(frozen=True, slots=True)
class Flaw:
    """A damaged object, and the backups that need it."""

    name: str
    why: str
    backups: tuple[str, ...]


def flaws_of(
    repository: Repository, backups: Iterable[Backup], seams: Seams, progress: Progress
) -> Iterator[Flaw]:
    """Read all objects of some backups, each once, and yield those from which no store is restored.

    Raises OSError when the place cannot be read.
    """
    objects: dict[StoredObject, list[str]] = {}
    small: dict[StoredObject, Backup] = {}
    for backup in backups:
        for each in backup.objects():
            key = StoredObject(name=each.name, size=each.size, crc32c=each.crc32c)
            objects.setdefault(key, []).append(backup.id)
        small[backup.tables] = backup.model_copy(update={"segments": ()})
    total, done = sum(each.size for each in objects), 0
    for each, ids in objects.items():
        try:
            for piece in repository.pieces(each):
                done += len(piece)
                progress("verifying", done, total)
            if each in small:
                rehearse(small[each], repository.tables(small[each]), seams)
        except BackupDamaged as error:
            yield Flaw(each.name, str(error), tuple(ids))
