"""The settings of a store: those that operators gave its writers, kept in format.json.

Each setting is the one given to this opening, else the store's, else RocketMQ's default. So a job
or a tool without settings uses and keeps those of the store. Sizes of files are not among them:
format.json has them as ``sizes``.
"""

from __future__ import annotations

import logging
from typing import Final

from pydantic import ValidationError

from mqstore.storage.config import StoreConfig
from mqstore.storage.errors import StoreUnsupported
from mqstore.storage.metadata import format_file
from mqstore.storage.metadata.format_file import FormatFile, Settings, Sizes
from mqstore.storage.paths import StorePaths
from mqstore.storage.seams import FileSystem

_BROKER_CONF_SIZE_MAX: Final = 1 << 20
_OF_AN_OLDER_RUN: Final = {"fileReservedTime": "876000", "cleanFileForciblyEnable": "false"}
"""Lines that `mqstore run` of an older version wrote into broker.conf without an operator."""
_ALIASES: Final = {name: str(field.alias) for name, field in StoreConfig.model_fields.items()}
_NAMES: Final = {alias: name for name, alias in _ALIASES.items()}

log = logging.getLogger(__name__)


def load_recorded(files: FileSystem, paths: StorePaths, found: FormatFile | None) -> Settings:
    """Load the store's settings, in RocketMQ's names.

    A store that an older version wrote has none in format.json: then the broker.conf that the same
    version wrote beside it counts. Without format.json its sizes count too.
    """
    if found is not None and found.settings is not None:
        return found.settings
    said = _read_broker_conf(files, paths)
    if said.items() >= _OF_AN_OLDER_RUN.items():
        said = {name: value for name, value in said.items() if name not in _OF_AN_OLDER_RUN}
    sizes = {_ALIASES[name] for name in Sizes.model_fields} if found is not None else set()
    usable = {name: value for name, value in said.items() if name in _NAMES and name not in sizes}
    return {name: value for name, value in usable.items() if _is_valid(name, value, paths)}


def apply(config: StoreConfig, store: Settings, paths: StorePaths) -> StoreConfig:
    """Return ``config`` with the store's value of each setting that it does not set itself.

    Raises StoreUnsupported for a value that this version cannot use.
    """
    known = {_NAMES[name]: value for name, value in store.items() if name in _NAMES}
    given = {name: getattr(config, name) for name in config.model_fields_set}
    try:
        return StoreConfig.model_validate(known | given)
    except ValidationError as error:
        first = error.errors()[0]
        name = _ALIASES.get(str(first["loc"][0]), str(first["loc"][0]))
        raise StoreUnsupported(
            f"{paths.format} has {name}={first['input']!r}: {first['msg']}; give {name} to the "
            "store-writer, which records it, or use the version of mqstore that wrote this"
        ) from error


def to_record(config: StoreConfig, store: Settings) -> Settings:
    """The settings for format.json: every setting of ``config`` that was set, under RocketMQ's
    names, and the store's settings that only a newer version knows."""
    newer = {name: value for name, value in store.items() if name not in _NAMES}
    mine = config.model_fields_set - Sizes.model_fields.keys()
    return newer | config.model_dump(mode="json", by_alias=True, include=mine)


def describe_changes(before: Settings, after: Settings) -> str:
    """``name: old -> new`` of each setting that differs; empty when none does."""
    names = sorted(before.keys() | after.keys())
    return ", ".join(
        f"{name}: {before.get(name, 'default')} -> {after.get(name, 'default')}"
        for name in names
        if before.get(name) != after.get(name)
    )


def _read_broker_conf(files: FileSystem, paths: StorePaths) -> dict[str, str]:
    stat = files.stat(paths.broker_conf)
    if stat is None or stat.is_directory or stat.size > _BROKER_CONF_SIZE_MAX:
        return {}
    return format_file.read_broker_conf(files, paths)


def _is_valid(name: str, value: str, paths: StorePaths) -> bool:
    try:
        StoreConfig.model_validate({_NAMES[name]: value})
    except ValidationError as error:
        log.warning(
            "%s: %s=%s is not used: %s", paths.broker_conf, name, value, error.errors()[0]["msg"]
        )
        return False
    return True
