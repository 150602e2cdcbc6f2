"""The settings that decide what goes, as one value: what a plan was made by, and reports are."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field

from mqstore.storage.config import StoreConfig
from mqstore.storage.retention.value import Value


class RetentionRule(Value):
    """Settings of the store, under their own names. Ratios in percent."""

    file_reserved_time: Annotated[int, Field(description="Hours.")]
    delete_when: str
    clean_file_forcibly_enable: bool
    clean_file_forcibly_min_age: Annotated[int, Field(description="Milliseconds.")]
    disk_max_used_space_ratio: int
    disk_space_clean_forcibly_ratio: int
    disk_space_warning_level_ratio: int
    keep_for_groups: str
    keep_disk_ceiling_ratio: int

    @classmethod
    def of(cls, config: StoreConfig) -> Self:
        return cls(**{name: getattr(config, name) for name in cls.model_fields})

    def applied_to(self, config: StoreConfig) -> StoreConfig:
        """Checked again: a rule may come from elsewhere. Raises ValueError."""
        return StoreConfig.model_validate(config.model_dump() | self.model_dump())
