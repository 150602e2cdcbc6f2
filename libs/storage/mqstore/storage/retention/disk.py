"""Measures how full the volumes of log and queues are, and decides what follows.

As in RocketMQ's CleanCommitLogService (4.9.7, 5.4.0), by the bytes that an unprivileged user may
have: above diskMaxUsedSpaceRatio expired files are removed at any hour; above
diskSpaceCleanForciblyRatio files are removed at any age; above diskSpaceWarningLevelRatio puts are
rejected, until every volume is at or below diskSpaceCleanForciblyRatio again. One byte more exceeds
a ratio in percent. Bytes just unlinked count as free for the deletion of files, and as used for the
rejection of puts.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from mqstore.storage.config import StoreConfig
from mqstore.storage.errors import DiskFull
from mqstore.storage.metadata.sealed_json import StrictValue
from mqstore.storage.paths import StorePaths
from mqstore.storage.retention.unlinked_bytes import UnlinkedBytes
from mqstore.storage.seams import DiskUsage, FileSystem

log = logging.getLogger(__name__)


class Volume(StrictValue):
    """One measured volume. Sizes are in bytes, as an unprivileged user may use them."""

    name: str
    """Directory on the volume: commitlog or consumequeue."""
    path: str
    total_bytes: int
    used_bytes: int
    free_bytes: int
    used_percent: float
    unlinked_bytes: int = 0
    """Part of ``used_bytes``: deleted files that some process has open still."""

    @property
    def expected_bytes(self) -> int:
        """Bytes in use once every process has closed the deleted files."""
        return self.used_bytes - self.unlinked_bytes

    def is_above(self, percent: int, more: int = 0) -> bool:
        """Whether the volume will be fuller than that with ``more`` bytes in use."""
        return (self.expected_bytes + more) * 100 > percent * self.total_bytes

    def shows_above(self, percent: int) -> bool:
        """Whether the usage of the volume is above this percentage."""
        return self.used_bytes * 100 > percent * self.total_bytes


@dataclass(frozen=True, slots=True)
class Disks:
    """The volumes at one moment; empty when they could not be measured."""

    volumes: Sequence[Volume] = ()
    refuses: bool = False
    """Whether puts are rejected for lack of room."""

    lost_bytes: int = 0
    """Bytes of deleted files that count as used until a measurement shows their blocks as free."""
    doubts: bool = False
    """Whether forced deletion waits because the last one made no room."""

    def is_above(self, percent: int, more: int = 0) -> bool:
        """Whether any volume will be fuller than that with ``more`` bytes in use on it."""
        return any(volume.is_above(percent, more) for volume in self.volumes)

    def shows_above(self, percent: int) -> bool:
        """Whether the usage of any volume is above this percentage."""
        return any(volume.shows_above(percent) for volume in self.volumes)

    def fullest(self) -> Volume:
        """The fullest volume; there is one when puts are rejected."""
        return max(self.volumes, key=lambda volume: volume.used_percent)


class DiskWatch:
    """Measures the volumes, and decides whether puts are rejected. One thread at a time."""

    def __init__(self, files: FileSystem, paths: StorePaths, config: StoreConfig) -> None:
        self._files = files
        self._paths = {"commitlog": paths.commit_log, "consumequeue": paths.consume_queue}
        self._config = config
        self._unlinked = UnlinkedBytes()
        """Unlinked bytes of the commit log's volume."""
        self.last = Disks()
        """The last measurement."""

    def note_unlinked(self, size: int, now: float) -> None:
        """Note that ``size`` bytes of the commit log were unlinked at monotonic time ``now``."""
        self._unlinked.add(size, now)

    def measure(self, now: float = 0.0, made: int = 0) -> Disks:
        """Measure the volumes; one that cannot be measured keeps its last figures.

        ``now`` and ``made`` as in ``UnlinkedBytes.settle``.
        """
        try:
            usages = {name: self._files.usage(path) for name, path in self._paths.items()}
        except OSError as error:
            log.warning("the disks cannot be measured, so they count as before: %s", error)
            return self.last
        of_log = usages["commitlog"]
        lost = self._unlinked.settle(of_log.used, made, now)
        volumes = [
            self._volume(name, usage, usage.device == of_log.device)
            for name, usage in usages.items()
        ]
        measured = Disks(volumes)
        if measured.shows_above(self._config.disk_space_warning_level_ratio):
            refuses = True
        else:
            held = measured.shows_above(self._config.disk_space_clean_forcibly_ratio)
            refuses = self.last.refuses and held
        self.last = Disks(volumes, refuses, lost, self._unlinked.doubts(now))
        return self.last

    def _volume(self, name: str, usage: DiskUsage, has_log: bool) -> Volume:
        return Volume(
            name=name,
            path=str(self._paths[name]),
            total_bytes=usage.total,
            used_bytes=usage.used,
            free_bytes=usage.free,
            used_percent=round(100 * usage.used / usage.total, 2) if usage.total else 0.0,
            unlinked_bytes=min(self._unlinked.left, usage.used) if has_log else 0,
        )

    def refusal(self, disks: Disks) -> DiskFull:
        """The error of puts while they are rejected."""
        fullest, config = disks.fullest(), self._config
        refused_above = config.disk_space_warning_level_ratio
        accepted_at = min(refused_above, config.disk_space_clean_forcibly_ratio)
        return DiskFull(
            f"the volume of {fullest.path} is {fullest.used_percent:.1f} % full "
            f"({fullest.used_bytes} of {fullest.total_bytes} bytes); above {refused_above} % "
            f"nothing is stored until it is at most {accepted_at} %: make room",
            {
                "volume": fullest.name,
                "path": fullest.path,
                "totalBytes": fullest.total_bytes,
                "usedBytes": fullest.used_bytes,
                "freeBytes": fullest.free_bytes,
                "usedPercent": fullest.used_percent,
                "refusedAbovePercent": refused_above,
                "acceptedAtPercent": accepted_at,
            },
        )
