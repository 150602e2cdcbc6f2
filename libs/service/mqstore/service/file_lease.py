"""A lease in a directory, for replicas that are processes of one machine."""

from __future__ import annotations

import os
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec

from mqstore.storage.replication import Lease, LeaseConflict, LeaseUnavailable

KEPT: Final = 1_000
"""Versions that are kept: a process that was suspended for more writes does not lead any more."""


class FileLease:
    """An ``election.LeaseStore``: each version is a file, whose name is its number.

    A version is made by a link, which fails where it exists: no process holds a lock while it is
    suspended.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def read(self) -> Lease | None:
        """Return the newest version; None without one. Raises LeaseUnavailable."""
        try:
            number = self._newest()
            if not number:
                return None
            return msgspec.json.decode((self._directory / str(number)).read_bytes(), type=Lease)
        except (OSError, msgspec.MsgspecError) as error:
            raise self._unavailable(error) from error

    def write(self, lease: Lease) -> Lease:
        """Make the next version. Raises LeaseConflict, LeaseUnavailable."""
        number = int(lease.version or 0) + 1
        written = replace(lease, version=str(number))
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=self._directory, prefix=".") as staged:
                staged.write(msgspec.json.encode(written))
                staged.flush()
                os.link(staged.name, self._directory / str(number))
            (self._directory / str(number - KEPT)).unlink(missing_ok=True)
        except FileExistsError as error:
            raise LeaseConflict("the lease was written by another candidate") from error
        except OSError as error:
            raise self._unavailable(error) from error
        return written

    def _newest(self) -> int:
        try:
            names = [path.name for path in self._directory.iterdir()]
        except FileNotFoundError:
            return 0
        return max((int(name) for name in names if name.isdigit()), default=0)

    def _unavailable(self, error: Exception) -> LeaseUnavailable:
        return LeaseUnavailable(f"the lease in {self._directory} is not usable: {error}")
