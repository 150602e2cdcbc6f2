"""How full the volumes of log and queues are, and what follows from that.

As in RocketMQ's CleanCommitLogService (4.9.7, 5.4.0), by bytes that an unprivileged user may have:
above diskMaxUsedSpaceRatio expired files go at any hour; above diskSpaceCleanForciblyRatio files go
whatever their age; above diskSpaceWarningLevelRatio puts are refused, until every volume is at or
below diskSpaceCleanForciblyRatio again. A ratio in percent is exceeded by one byte more.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from mqstore.storage.config import StoreConfig
from mqstore.storage.errors import DiskFull
from mqstore.storage.paths import StorePaths
from mqstore.storage.retention.value import Value
from mqstore.storage.seams import FileSystem

log = logging.getLogger(__name__)


class Volume(Value):
    """One volume as it was measured. Sizes in bytes, as an unprivileged user may use them."""

    name: Annotated[str, Field(description="What lies on it: commitlog or consumequeue.")]
    path: str
    total_bytes: int
    used_bytes: int
    free_bytes: int
    used_percent: float

    def is_above(self, percent: int) -> bool:
        return self.used_bytes * 100 > percent * self.total_bytes


@dataclass(frozen=True, slots=True)
class Disks:
    """The volumes at one moment; none where they could not be measured."""

    volumes: Sequence[Volume] = ()
    refuses: bool = False
    """Whether puts are refused for want of room."""

    def is_above(self, percent: int) -> bool:
        """Whether any volume is fuller than that."""
        return any(volume.is_above(percent) for volume in self.volumes)

    def fullest(self) -> Volume:
        """There is one where puts are refused."""
        return max(self.volumes, key=lambda volume: volume.used_percent)


class DiskWatch:
    """Measures, and remembers whether puts are refused. One thread at a time."""

    def __init__(self, files: FileSystem, paths: StorePaths, config: StoreConfig) -> None:
        self._files = files
        self._paths = {"commitlog": paths.commit_log, "consumequeue": paths.consume_queue}
        self._config = config
        self.last = Disks()
        """What was measured last."""

    def measure(self) -> Disks:
        """What cannot be measured is as it was last seen."""
        try:
            volumes = [self._volume(name, path) for name, path in self._paths.items()]
        except OSError as error:
            log.warning("the disks cannot be measured, so they count as before: %s", error)
            return self.last
        measured = Disks(volumes)
        if measured.is_above(self._config.disk_space_warning_level_ratio):
            refuses = True
        else:
            held = measured.is_above(self._config.disk_space_clean_forcibly_ratio)
            refuses = self.last.refuses and held
        self.last = Disks(volumes, refuses)
        return self.last

    def _volume(self, name: str, path: Path) -> Volume:
        usage = self._files.usage(path)
        return Volume(
            name=name,
            path=str(path),
            total_bytes=usage.total,
            used_bytes=usage.used,
            free_bytes=usage.free,
            used_percent=round(100 * usage.used / usage.total, 2) if usage.total else 0.0,
        )

    def refusal(self, disks: Disks) -> DiskFull:
        """What puts are answered while they are refused."""
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
