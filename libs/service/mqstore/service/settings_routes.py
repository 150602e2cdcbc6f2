"""The routes of the settings in force, which every service has."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any

from fastapi import Path, Query
from pydantic import BaseModel, SecretStr, ValidationError
from pydantic.alias_generators import to_camel

from mqstore.service import problems
from mqstore.service.app import Api
from mqstore.service.endpoint import Endpoint
from mqstore.service.problems import Problem
from mqstore.service.settings import Settings, explain, read_properties
from mqstore.storage import StoreConfig
from mqstore.storage.settings import ENV_PREFIX, fold, given_variables
from mqstore.wire.settings import (
    SETTING,
    SETTINGS,
    Setting,
    SettingList,
    SettingParameters,
    SettingSource,
)

TAG = {"settings": "The settings in force, and where each comes from."}
NOT_OF_USERS = frozenset({"store_config", "listen_fd", "parent_pid"})
"""Fields of Settings that no user sets: the other model, and what ``mqstore run`` gives."""
SECRET = "(set)"  # noqa: S105  # stands for a token

Name = Annotated[
    str,
    Path(
        description="Name of the setting or of its variable; case and _ do not matter.",
        openapi_examples={"one": {"value": "queryThreads"}},
    ),
]
Wanted = Annotated[SettingParameters, Query()]


class SettingsRoutes:
    """Serves the settings of this process."""

    def __init__(self, settings: Settings, config: Callable[[], StoreConfig] | None = None) -> None:
        """``config`` returns the configuration of the store that this service writes to."""
        self._settings = settings
        self._config = config

    def add(self, api: Api) -> None:
        """Register the routes with ``api``."""
        Endpoint(operation=SETTINGS, handler=self.settings).add(api)
        Endpoint(operation=SETTING, handler=self.setting).add(api)

    async def settings(self) -> SettingList:
        """All settings with their values and sources. They are read at the start: a change needs a
        restart."""
        file, given = self._settings.config_file, self._given()
        found = (
            self._setting(model, field, given) for model in self._models for field in _fields(model)
        )
        return SettingList(
            config_file=None if file is None else str(file),
            settings=tuple(sorted(found, key=lambda each: each.name)),
        )

    async def setting(self, name: Name, wanted: Wanted) -> Setting:
        """One setting. With `value`: as it would be with another value. An unknown name, and
        a value that the setting cannot have, are refused (400)."""
        value = wanted.value
        folded = fold(name).removeprefix(fold(ENV_PREFIX))
        for model in self._models:
            for field in _fields(model):
                if folded in _names(model, field):
                    found = self._setting(model, field, self._given())
                    return found if value is None else _changed(model, field, found, value)
        raise Problem(
            problems.BAD_PARAMETER,
            f"there is no setting {name[:80]!r}; GET /v1/settings lists them",
        )

    @property
    def _models(self) -> tuple[BaseModel, ...]:
        return (self._settings,) if self._config is None else (self._settings, self._config())

    def _given(self) -> _Given:
        file = self._settings.config_file
        return _Given(
            in_environment=frozenset(fold(name) for name, _ in given_variables(os.environ)),
            in_file=frozenset() if file is None else frozenset(map(fold, read_properties(file))),
        )

    def _setting(self, model: BaseModel, field: str, given: _Given) -> Setting:
        value = _plain(getattr(model, field))
        default = _plain(type(model).model_fields[field].get_default())
        names = _names(model, field)
        source = SettingSource.DEFAULT
        if names & given.in_environment:
            source = SettingSource.ENVIRONMENT
        elif names & given.in_file:
            source = SettingSource.FILE
        elif value != default:
            is_of_process = model is self._settings
            source = SettingSource.COMMAND if is_of_process else SettingSource.STORE
        return Setting(
            name=to_camel(field),
            variable=f"{ENV_PREFIX}{field.upper()}",
            value=value,
            default=default,
            source=source,
        )


@dataclass(frozen=True, slots=True)
class _Given:
    """The folded names of the settings that the sources have."""

    in_environment: frozenset[str]
    in_file: frozenset[str]


def _changed(model: BaseModel, field: str, found: Setting, value: str) -> Setting:
    """Return a setting with another value. Raises Problem if it cannot have that."""
    others = {name: getattr(model, name) for name in type(model).model_fields}
    try:
        changed = type(model)(**others | {field: value})
    except ValidationError as error:
        raise Problem(problems.BAD_PARAMETER, "; ".join(explain(error))) from None
    return found.model_copy(update={"value": _plain(getattr(changed, field))})


def _fields(model: BaseModel) -> Iterator[str]:
    return (name for name in type(model).model_fields if name not in NOT_OF_USERS)


def _names(model: BaseModel, field: str) -> frozenset[str]:
    """The folded names of a setting."""
    alias = type(model).model_fields[field].validation_alias
    choices = getattr(alias, "choices", [alias])
    return frozenset({fold(field), *(fold(each) for each in choices if isinstance(each, str))})


def _plain(value: Any) -> str | int | float | bool | None:
    if isinstance(value, SecretStr):
        return SECRET
    if isinstance(value, Enum):
        return str(value.value)
    return value if isinstance(value, str | int | float | None) else str(value)
