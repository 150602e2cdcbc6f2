"""The route of the settings in force."""

from __future__ import annotations

import os
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

from pydantic import BaseModel, SecretStr
from pydantic.alias_generators import to_camel

from mqstore.service.app import Api
from mqstore.service.endpoint import Endpoint
from mqstore.service.settings import Settings, read_properties
from mqstore.storage.settings import fold, given_variables
from mqstore.wire.settings import SETTINGS, Setting, SettingList, SettingSource
from mqstore.writer.service import WriterService

NOT_OF_USERS = frozenset({"store_config", "listen_fd", "parent_pid"})
"""Fields of Settings that no user sets: the other model, and what ``mqstore run`` gives."""
SECRET = "(set)"  # noqa: S105  # stands for a token


class SettingsRoutes:
    """Serves the settings of this process."""

    def __init__(self, service: WriterService) -> None:
        self._service = service

    def add(self, api: Api) -> None:
        """Register the route with ``api``."""
        Endpoint(operation=SETTINGS, handler=self.settings).add(api)

    async def settings(self) -> SettingList:
        """All settings with their values and sources. They are read at the start: a change needs a
        restart."""
        settings = self._service.settings
        file = settings.config_file
        found = settings_of(settings, self._service.store.config, _in_file(file))
        return SettingList(
            config_file=None if file is None else str(file),
            settings=tuple(sorted(found, key=lambda each: each.name)),
        )


def settings_of(
    settings: Settings, config: BaseModel, in_file: frozenset[str]
) -> Iterator[Setting]:
    """Yield the settings of the services, then those of the store that ``config`` has."""
    in_environment = frozenset(fold(name) for name, _ in given_variables(os.environ))
    for model, otherwise in ((settings, SettingSource.COMMAND), (config, SettingSource.STORE)):
        for name, field in type(model).model_fields.items():
            if name in NOT_OF_USERS:
                continue
            value, default = _plain(getattr(model, name)), _plain(field.get_default())
            source = SettingSource.DEFAULT if value == default else otherwise
            names = {fold(name), *_aliases(field.validation_alias)}
            if names & in_file:
                source = SettingSource.FILE
            if names & in_environment:
                source = SettingSource.ENVIRONMENT
            yield Setting(
                name=to_camel(name),
                variable=f"MQSTORE_{name.upper()}",
                value=value,
                default=default,
                source=source,
            )


def _aliases(alias: Any) -> Iterator[str]:
    choices = getattr(alias, "choices", [alias])
    yield from (fold(each) for each in choices if isinstance(each, str))


def _in_file(path: Path | None) -> frozenset[str]:
    return frozenset() if path is None else frozenset(map(fold, read_properties(path)))


def _plain(value: Any) -> str | int | float | bool | None:
    if isinstance(value, SecretStr):
        return SECRET
    if isinstance(value, Enum):
        return str(value.value)
    return value if isinstance(value, str | int | float | None) else str(value)
