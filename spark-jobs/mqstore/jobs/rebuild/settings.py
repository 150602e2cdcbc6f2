"""The settings of a rebuild."""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import Enum, auto

from mqstore.storage import StoreConfig
from mqstore.storage.formats import StoreFormat


class Mode(Enum):
    """The three kinds of a run."""

    PUBLISH = auto()
    """Build the index and replace the existing one."""
    VERIFY = auto()
    """Compare with the existing index; writes only to the scratch directory."""
    DRY_RUN = auto()
    """Report the size of the rebuild."""


@dataclass(frozen=True, slots=True)
class RebuildSettings:
    """The options of a run; None stands for the store's own value."""

    mode: Mode = Mode.PUBLISH
    store_format: StoreFormat | None = None
    hash_slots: int | None = None
    index_num: int | None = None
    disk_ratio: int = 75
    """Maximum percent of the volume in use once the files are staged."""
    name: str = ""
    """Name of the run; by default host and process id."""
    token_file: str | None = None
    ca: str | None = None

    @property
    def owner(self) -> str:
        """The name of the run that the writer records and reports to concurrent runs."""
        return f"index-rebuild job {self.name or f'{os.uname().nodename} ({os.getpid()})'}"

    def config(self) -> StoreConfig:
        """The configuration to open the store with; the sizes that the store records win."""
        given = {"max_hash_slot_num": self.hash_slots, "max_index_num": self.index_num}
        return StoreConfig.model_validate({k: v for k, v in given.items() if v is not None})
