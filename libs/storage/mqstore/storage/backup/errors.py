"""Errors of backups and restores; each is a StorageError."""

from __future__ import annotations

from mqstore.storage.errors import StorageError


class BackupError(StorageError):
    """A backup or a restore that cannot be done."""


class BackupUnknown(BackupError):
    """A backup that the repository does not have."""


class BackupDamaged(BackupError):
    """An object of a backup is missing, or is not as it was written."""


class RepositoryInUse(BackupError):
    """Another process changes the repository."""


class CutRefused(BackupError):
    """An end of the log that no backup, or not this one, reaches."""


class TargetRefused(BackupError):
    """A directory into which no store is restored."""
