"""Settings of a store by name: RocketMQ's properties, environment variables, delay levels.

Used by services, commands and jobs to read and to refuse settings. ``StoreConfig`` is the value.
"""

from mqstore.storage.broker_settings import HANDLED as BROKER_SETTINGS
from mqstore.storage.broker_settings import lacks as broker_lacks
from mqstore.storage.broker_settings import refusals as broker_refusals
from mqstore.storage.config import FlushDiskType
from mqstore.storage.delay_levels import DelayLevels
from mqstore.storage.service_settings import ServiceSettings
from mqstore.storage.setting_names import (
    ENV_PREFIX,
    fields_by_name,
    fold,
    given_variables,
    is_setting,
    unknown_variables,
)
from mqstore.storage.settings_file import parse as parse_settings_file
from mqstore.storage.settings_file import refusals as file_refusals

__all__ = [
    "BROKER_SETTINGS",
    "ENV_PREFIX",
    "DelayLevels",
    "FlushDiskType",
    "ServiceSettings",
    "broker_lacks",
    "broker_refusals",
    "fields_by_name",
    "file_refusals",
    "fold",
    "given_variables",
    "is_setting",
    "parse_settings_file",
    "unknown_variables",
]
