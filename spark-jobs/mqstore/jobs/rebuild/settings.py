"""What a rebuild was asked for."""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import Enum, auto

from mqstore.storage.config import StoreConfig
from mqstore.storage.layout import StoreFormat


class Mode(Enum):
    PUBLISH = auto()
    VERIFY = auto()
    """Compare with what is there; nothing is written but to this machine's scratch."""
    DRY_RUN = auto()
    """Say what would be done."""


@dataclass(frozen=True, slots=True)
class RebuildSettings:
    mode: Mode = Mode.PUBLISH
    store_format: StoreFormat | None = None
    """None: the store's own."""
    hash_slots: int | None = None
    index_num: int | None = None
    disk_ratio: int = 75
    """Percent of the volume that may be used once the files are staged."""
    name: str = ""
    """Of this run; by default this machine's and this process's."""
    token_file: str | None = None
    ca: str | None = None

    @property
    def owner(self) -> str:
        """Who rebuilds, as a writer is told, and tells others."""
        return f"index-rebuild job {self.name or f'{os.uname().nodename} ({os.getpid()})'}"

    def config(self) -> StoreConfig:
        """What the store is opened with: its own sizes win where it has some."""
        given = {"max_hash_slot_num": self.hash_slots, "max_index_num": self.index_num}
        return StoreConfig.model_validate({k: v for k, v in given.items() if v is not None})
