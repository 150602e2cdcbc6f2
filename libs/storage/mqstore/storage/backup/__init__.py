"""Backups of a store and their restore: creation beside a running writer, verification, pruning.

Used by ``mqstore backup`` and ``mqstore restore``. A ``Repository`` keeps the backups of one store
in ``Objects``: ``DirectoryObjects`` for a directory; the commands have an implementation for URLs.
"""

from mqstore.storage.backup.checking import Flaw, flaws_of
from mqstore.storage.backup.creation import Created, Creation
from mqstore.storage.backup.errors import (
    BackupDamaged,
    BackupError,
    BackupUnknown,
    CutRefused,
    RepositoryInUse,
    TargetRefused,
)
from mqstore.storage.backup.manifest import Backup, Cut
from mqstore.storage.backup.objects import CHUNK, DirectoryObjects, Objects
from mqstore.storage.backup.pruning import PrunePlan, Rule, plan_prune, prune
from mqstore.storage.backup.repository import Listed, Repository
from mqstore.storage.backup.restoring import Restoration, Restored, choose

__all__ = [
    "CHUNK",
    "Backup",
    "BackupDamaged",
    "BackupError",
    "BackupUnknown",
    "Created",
    "Creation",
    "Cut",
    "CutRefused",
    "DirectoryObjects",
    "Flaw",
    "Listed",
    "Objects",
    "PrunePlan",
    "Repository",
    "RepositoryInUse",
    "Restoration",
    "Restored",
    "Rule",
    "TargetRefused",
    "choose",
    "flaws_of",
    "plan_prune",
    "prune",
]
