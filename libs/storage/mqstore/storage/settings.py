"""Settings of a store by name: RocketMQ's properties, environment variables, delay levels.

Used by services, commands and jobs to read and to refuse settings. ``StoreConfig`` is the value.
"""

from mqstore.storage.broker_settings import NAMES as BROKER_SETTINGS
from mqstore.storage.broker_settings import refusals as broker_refusals
from mqstore.storage.config import FlushDiskType
from mqstore.storage.delay_levels import DelayLevels
from mqstore.storage.setting_names import (
    ENV_PREFIX,
    fold,
    given_variables,
    is_setting,
    unknown_settings,
    unknown_variables,
)

__all__ = [
    "BROKER_SETTINGS",
    "ENV_PREFIX",
    "DelayLevels",
    "FlushDiskType",
    "broker_refusals",
    "fold",
    "given_variables",
    "is_setting",
    "unknown_settings",
    "unknown_variables",
]
