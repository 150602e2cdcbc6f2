"""A repository: the backups of one store, and the lock of those that change it.

A process that creates or prunes holds an exclusive lock: an object with a lease, which it renews.
Few stores of objects have locks. Each process first writes its own and then looks for others, so
that of two at least one sees the other. Reading needs no lock.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

from crc32c import crc32c
from pydantic import Field

from mqstore.storage.backup.errors import (
    BackupDamaged,
    BackupError,
    BackupUnknown,
    RepositoryInUse,
)
from mqstore.storage.backup.manifest import (
    BACKUPS,
    ID,
    LOCKS,
    LOG,
    MANIFEST_SIZE_MAX,
    SUFFIX,
    TABLES,
    Backup,
    Millis,
    StoredObject,
    Tables,
    manifest_name,
    seal,
    unseal,
)
from mqstore.storage.backup.objects import Objects
from mqstore.storage.metadata.sealed_json import Value
from mqstore.storage.seams import Clock, Seams

LEASE_S: Final = 600
"""Seconds after which the lock of a process that was killed on another machine ends."""
_LOCK_SIZE_MAX: Final = 64 << 10
_PID_NAMESPACE: Final = Path("/proc/self/ns/pid")


class _Lock(Value):
    purpose: Annotated[str, Field(max_length=200)]
    host: Annotated[str, Field(max_length=1000)]
    """Machine and process namespace: a process id is known only within."""
    pid: Annotated[int, Field(gt=0, lt=2**31)]
    until_ms: Millis


@dataclass(frozen=True, slots=True)
class Listed:
    """A manifest of the repository."""

    id: str
    backup: Backup | None
    """None for one that cannot be read."""
    why: str | None = None


class Lease:
    """A held lock. One thread."""

    def __init__(self, objects: Objects, clock: Clock, name: str, purpose: str) -> None:
        self._objects = objects
        self._clock = clock
        self.name = name
        self._purpose = purpose
        self._due = 0.0

    def renew(self) -> None:
        """Write the lock again once half of its lease has passed. Raises OSError."""
        now = self._clock.monotonic()
        if now >= self._due:
            self._due = now + LEASE_S / 2
            until_ms = self._clock.now_ms() + LEASE_S * 1000
            raw = seal(
                _Lock(purpose=self._purpose, host=_host(), pid=os.getpid(), until_ms=until_ms)
            )
            self._objects.write(self.name, len(raw), [raw])

    def require(self) -> None:
        """Check that no other process has removed the lock as ended.

        Raises RepositoryInUse, OSError.
        """
        if self.name not in self._objects.sizes(LOCKS):
            raise RepositoryInUse(
                "this process was stopped for so long that its lock has ended; repeat the command"
            )

    def release(self) -> None:
        """Remove the lock; one that cannot be removed ends with its lease."""
        with suppress(OSError):
            self._objects.remove(self.name)


class Repository:
    """The backups of one place. Methods raise OSError when the place refuses."""

    def __init__(self, objects: Objects, seams: Seams) -> None:
        self.objects = objects
        self._seams = seams

    def listed(self) -> Iterator[Listed]:
        """Yield all backups, the oldest first, with those whose manifest cannot be read.

        Manifests are read one by one: together they may have more bytes than there is memory.
        """
        return map(self._listed, self._ids())

    def _ids(self) -> list[str]:
        names = sorted(self.objects.sizes(BACKUPS))
        ids = (name.removeprefix(f"{BACKUPS}/").removesuffix(SUFFIX) for name in names)
        return [each for each in ids if ID.fullmatch(each)]

    def whole(self) -> Iterator[Backup]:
        """Yield the backups whose manifests can be read, the oldest first."""
        return (each.backup for each in self.listed() if each.backup is not None)

    def newest(self) -> Backup | None:
        """The newest backup whose manifest can be read; None without one."""
        listed = map(self._listed, reversed(self._ids()))
        return next((each.backup for each in listed if each.backup is not None), None)

    def get(self, backup_id: str | None) -> Backup:
        """A backup, by default the newest one. Raises BackupUnknown, BackupDamaged."""
        if backup_id is not None:
            if not ID.fullmatch(backup_id):
                raise BackupUnknown(
                    f"{backup_id[:40]!r} is no id of a backup; list them: mqstore backup ls"
                    f" {self.objects.place}"
                )
            return self._load(backup_id)
        found = self.newest()
        if found is None:
            raise BackupUnknown(f"{self.objects.place} has no backup that can be read")
        return found

    def _listed(self, backup_id: str) -> Listed:
        try:
            return Listed(backup_id, self._load(backup_id))
        except BackupError as error:
            return Listed(backup_id, None, str(error))

    def _load(self, backup_id: str) -> Backup:
        name = manifest_name(backup_id)
        try:
            found = unseal(self._read(name, MANIFEST_SIZE_MAX), Backup, name)
        except FileNotFoundError:
            raise BackupUnknown(f"{self.objects.place} has no backup {backup_id}") from None
        if found.id != backup_id:
            raise BackupDamaged(f"{name} is the manifest of {found.id}")
        return found

    def _read(self, name: str, size_max: int) -> bytes:
        """A document. Raises FileNotFoundError, BackupDamaged (too large)."""
        pieces, size = [], 0
        for piece in self.objects.read(name):
            size += len(piece)
            if size > size_max:
                raise BackupDamaged(f"{name} has more than {size_max} bytes")
            pieces.append(piece)
        return b"".join(pieces)

    def tables(self, backup: Backup) -> Tables:
        """The small files of a backup. Raises BackupDamaged."""
        name = backup.tables.name
        raw = b"".join(self.pieces(backup.tables))
        return unseal(raw, Tables, name)

    def pieces(self, part: StoredObject) -> Iterator[bytes]:
        """The bytes of an object, in pieces.

        Raises BackupDamaged at its end if they are not those that were written.
        """
        size = crc = 0
        try:
            for piece in self.objects.read(part.name):
                size, crc = size + len(piece), crc32c(piece, crc)
                if size > part.size:
                    break
                yield piece
        except FileNotFoundError:
            raise BackupDamaged(f"{part.name} is missing") from None
        if size != part.size:
            raise BackupDamaged(f"{part.name} has {size} bytes and was written with {part.size}")
        if crc != part.crc32c:
            raise BackupDamaged(f"{part.name} is not as it was written: its CRC-32C differs")

    def clear_remains(self) -> None:
        """Remove what interrupted writes have left. With the lock only."""
        for folder in (LOG, TABLES, BACKUPS):
            self.objects.clear_remains(folder)

    @contextmanager
    def exclusive(self, purpose: str) -> Iterator[Lease]:
        """Hold the lock for the context. Raises RepositoryInUse."""
        clock = self._seams.clock
        name = f"{LOCKS}/{self._seams.random.getrandbits(64):016x}{SUFFIX}"
        lease = Lease(self.objects, clock, name, purpose)
        try:
            lease.renew()
            self._require_alone(name, clock.now_ms())
            yield lease
        finally:
            lease.release()

    def _require_alone(self, own: str, now_ms: int) -> None:
        for name in self.objects.sizes(LOCKS):
            if name == own:
                continue
            with suppress(FileNotFoundError, BackupDamaged):
                found = unseal(self._read(name, _LOCK_SIZE_MAX), _Lock, name)
                if found.until_ms > now_ms and not _has_ended(found):
                    raise RepositoryInUse(
                        f"{self.objects.place} is in use: a process on {found.host.split('/')[0]}"
                        f" ({found.purpose}, pid {found.pid}) changes it; if that was killed, its"
                        f" lock ends in {(found.until_ms - now_ms) // 1000 + 1} s"
                    )
            self.objects.remove(name)


def _host() -> str:
    try:
        namespace = str(_PID_NAMESPACE.readlink())
    except OSError:
        namespace = ""
    return f"{os.uname().nodename}/{namespace}"


def _has_ended(lock: _Lock) -> bool:
    """Whether the process of a lock is known to have ended."""
    if lock.host != _host():
        return False
    try:
        os.kill(lock.pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False
