"""``mqstore config …``: the settings of a running store-writer, and how each is changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from mqstore.cli.exit_codes import EXIT_REFUSED, refuse
from mqstore.cli.output import field_column
from mqstore.cli.session import Session, service_command

if TYPE_CHECKING:
    from mqstore.client import Setting

Name = Annotated[str, typer.Argument(help="Name of the setting; case and _ do not matter.")]

_COLUMNS: Final = (
    field_column("setting", "name"),
    field_column("value", "value"),
    field_column("source", "source"),
)
_DETAILS: Final = (
    *_COLUMNS,
    field_column("default", "default"),
    field_column("variable", "variable"),
)


@service_command
def ls(
    session: Session,
    everything: Annotated[
        bool, typer.Option("--all", help="Also settings that have their defaults.")
    ] = False,
) -> None:
    """List the settings that differ from their defaults, and where each comes from.

    They are those of store-writer. Needs the role admin; tokens are not shown.

    Examples:

    \b
        mqstore config ls
        mqstore config ls --all -o csv
    """
    found = session.client.settings().settings
    chosen = [each for each in found if everything or each.source != "default"]
    session.out.items(chosen, _COLUMNS)


@service_command
def get(session: Session, name: Name) -> None:
    """Show a setting: its value, its source, its default and its variable. Needs the role admin.

    Examples:

    \b
        mqstore config get fileReservedTime
        mqstore config get flush_disk_type -o json
    """
    session.out.item(_setting(session, name), _DETAILS)


@service_command
def how(session: Session, name: Name, value: Annotated[str, typer.Argument(help="Value.")]) -> int:
    """Say how a setting is changed: each is read when the services start. Changes nothing.

    Exit code 2: the setting has another value. 0: it has this one. Topics and groups are changed by
    `mqstore topic update` and `group update`. Needs the role admin.

    Examples:

    \b
        mqstore config set fileReservedTime 168
    """
    found = _setting(session, name)
    if found.value is not None and str(found.value).lower() == value.lower():
        session.out.done(f"{found.name} is {value}, from: {found.source}", found)
        return 0
    refuse(
        f"{found.name} is {found.value} (from: {found.source}) and is read at the start: set"
        f" {found.variable}={value} in the environment, or {found.name} = {value} in the settings"
        f" file, and restart the services; on Kubernetes: helm upgrade with the chart value"
        f" settings.{found.name}={value}"
    )
    return EXIT_REFUSED


def _setting(session: Session, name: str) -> Setting:
    """The setting of a name in any spelling. Raises ValueError for an unknown one."""
    folded = _fold(name)
    found = session.client.settings().settings
    for each in found:
        if _fold(each.name) == folded:
            return each
    import difflib

    near = difflib.get_close_matches(name, [each.name for each in found], n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise ValueError(f"there is no setting {name[:80]!r}{hint} (`mqstore config ls --all`)")


def _fold(name: str) -> str:
    return name.removeprefix("MQSTORE_").replace("_", "").lower()
