"""The settings of a running service: their values, and where each comes from."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field

from mqstore.wire.base import Reply
from mqstore.wire.examples import settings as examples
from mqstore.wire.operation import Operation, Role, Target
from mqstore.wire.parameters import Parameters


class SettingSource(StrEnum):
    """The place that gave a setting its value."""

    COMMAND = "command"
    ENVIRONMENT = "environment"
    FILE = "file"
    STORE = "store"
    DEFAULT = "default"


class Setting(Reply):
    """One setting."""

    name: str
    variable: Annotated[str, Field(description="The environment variable that sets it.")]
    value: Annotated[
        str | int | float | bool | None,
        Field(description="The value in force; `(set)` for a token."),
    ]
    default: Annotated[
        str | int | float | bool | None, Field(description="The value without any source.")
    ]
    source: Annotated[
        SettingSource,
        Field(
            description="environment: a variable, also one that `mqstore run` sets. file: the"
            " settings file. store: recorded in the store, or a consequence of another setting."
            " command: the program that started the service. default: none of them."
        ),
    ]


class SettingList(Reply):
    """All settings, by name. Each is read when the service starts."""

    config_file: Annotated[str | None, Field(description="The settings file, if there is one.")]
    settings: tuple[Setting, ...]


_EACH_SERVICE: Final = (Target.WRITER, Target.QUERY, Target.COORDINATOR)

SETTINGS: Final = Operation(
    name="settings",
    targets=_EACH_SERVICE,
    path="/v1/settings",
    role=Role.ADMIN,
    summary="Settings in force",
    tag="settings",
    reply=SettingList,
    example=examples.SETTINGS,
)


class SettingParameters(Parameters):
    """A value to try."""

    value: Annotated[
        str | None,
        Field(
            max_length=4096,
            description="A value, as text: the reply has it in place of the one in force, if the"
            " setting can have it. Nothing is changed.",
        ),
    ] = None


SETTING: Final = Operation(
    name="setting",
    targets=_EACH_SERVICE,
    path="/v1/settings/{name}",
    role=Role.ADMIN,
    summary="One setting, also with another value",
    tag="settings",
    query=SettingParameters,
    reply=Setting,
    example=examples.SETTING,
)
