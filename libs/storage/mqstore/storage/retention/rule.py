"""The settings of retention as one value, for plans and reports."""

from __future__ import annotations

from typing import Final, Self

from mqstore.storage.config import StoreConfig
from mqstore.storage.metadata.sealed_json import StrictValue

NO_DELETION: Final = {
    "file_reserved_time": 100 * 365 * 24,
    "clean_file_forcibly_enable": False,
}
"""Settings with which retention deletes nothing; of one process, never the store's."""


class RetentionRule(StrictValue):
    """Retention settings of the store, under their own names. Ratios are in percent."""

    file_reserved_time: int
    """Hours."""
    delete_when: str
    clean_file_forcibly_enable: bool
    clean_file_forcibly_min_age: int
    """Milliseconds."""
    disk_max_used_space_ratio: int
    disk_space_clean_forcibly_ratio: int
    disk_space_warning_level_ratio: int
    keep_for_groups: str
    keep_disk_ceiling_ratio: int

    @classmethod
    def of(cls, config: StoreConfig) -> Self:
        """The retention settings of a config."""
        return cls(**{name: getattr(config, name) for name in cls.model_fields})

    @property
    def deletes(self) -> bool:
        """Whether retention deletes anything by these settings."""
        return any(getattr(self, name) != value for name, value in NO_DELETION.items())

    def apply_to(self, config: StoreConfig) -> StoreConfig:
        """A config with these settings, checked, as a rule may come from another store.

        Raises ValueError.
        """
        return StoreConfig.model_validate(config.model_dump() | self.model_dump())
