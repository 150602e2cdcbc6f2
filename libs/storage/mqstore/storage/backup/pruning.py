"""Removes old backups, and the objects that no backup which stays needs.

Manifests are removed first: whatever ends the process, every manifest that is left has all of its
objects. Objects without a manifest go last, those of interrupted backups too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mqstore.storage.backup.errors import BackupError
from mqstore.storage.backup.manifest import LOG, TABLES, manifest_name
from mqstore.storage.backup.repository import Listed, Repository
from mqstore.storage.progress import Progress


@dataclass(frozen=True, slots=True)
class Rule:
    """The backups that are kept: each that one of the limits keeps, and always the newest."""

    newest: int = 1
    since_ms: int | None = None
    """Backups created at or after this time; None: no backup is kept for its age."""
    drops_unreadable: bool = False
    """True: backups whose manifests cannot be read are removed."""


@dataclass(frozen=True, slots=True)
class PrunePlan:
    """The backups and objects that are removed, and the number of backups that are kept."""

    removed: tuple[str, ...]
    kept: tuple[str, ...]
    objects: tuple[str, ...]
    bytes: int


def plan_prune(repository: Repository, rule: Rule) -> PrunePlan:
    """Decide what is removed. Changes nothing.

    Raises BackupError for manifests that cannot be read, unless the rule drops them; OSError.
    """
    listed = [_Age.of(each) for each in repository.listed()]
    unreadable = [each for each in listed if each.created_ms is None]
    if unreadable and not rule.drops_unreadable:
        raise BackupError(
            f"the manifest of {unreadable[0].id} cannot be read, so the objects that it needs are "
            "unknown; restore it, or remove such backups with --drop-unreadable"
        )
    kept = _kept(listed, rule)
    backups = (repository.get(each.id) for each in kept)
    needed = {part.name for each in backups for part in each.objects()}
    there = {**repository.objects.sizes(LOG), **repository.objects.sizes(TABLES)}
    objects = {name: size for name, size in there.items() if name not in needed}
    ids = {each.id for each in kept}
    return PrunePlan(
        removed=tuple(each.id for each in listed if each.id not in ids),
        kept=tuple(each.id for each in kept),
        objects=tuple(objects),
        bytes=sum(objects.values()),
    )


@dataclass(frozen=True, slots=True)
class _Age:
    """The age of a backup, without its objects."""

    id: str
    created_ms: int | None
    """None where its manifest cannot be read."""

    @classmethod
    def of(cls, listed: Listed) -> _Age:
        return cls(listed.id, None if listed.backup is None else listed.backup.created_ms)


def _kept(listed: Sequence[_Age], rule: Rule) -> list[_Age]:
    whole = [each for each in listed if each.created_ms is not None]
    newest = whole[-max(1, rule.newest) :]
    young = [
        each
        for each in whole[: -len(newest)]
        if rule.since_ms is not None and (each.created_ms or 0) >= rule.since_ms
    ]
    return young + newest


def prune(repository: Repository, rule: Rule, progress: Progress) -> PrunePlan:
    """Remove what the rule does not keep; returns what was removed.

    Raises RepositoryInUse, BackupError, OSError.
    """
    with repository.exclusive("backup prune") as lease:
        repository.clear_remains()
        found = plan_prune(repository, rule)
        names = [*map(manifest_name, found.removed), *found.objects]
        for done, name in enumerate(names, 1):
            lease.renew()
            repository.objects.remove(name)
            progress("removing", done, len(names))
    return found
