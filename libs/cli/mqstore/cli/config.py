"""``mqstore config …``: the settings of running services, and how each is changed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from mqstore.cli.exit_codes import EXIT_FINDINGS, EXIT_OK, EXIT_REFUSED, refuse
from mqstore.cli.output import Column, document, field_column, json_line
from mqstore.cli.session import Session, service_command

if TYPE_CHECKING:
    from mqstore.client import Setting


class Service(StrEnum):
    """The services, as ``Target`` of the client has them."""

    WRITER = "writer"
    QUERY = "query"
    COORDINATOR = "coordinator"


Name = Annotated[str, typer.Argument(help="Name of the setting; case and _ do not matter.")]
ServiceName = Annotated[Service, typer.Option("--service", help="The service that is requested.")]


def text(value: object) -> str:
    """A value in the form of the environment, a settings file and the chart."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _text(value: object) -> str | None:
    return None if value is None else text(value)


_COLUMNS: Final = (
    Column("service", lambda row: row["service"]),
    Column("setting", lambda row: row["name"]),
    Column("value", lambda row: _text(row["value"])),
    Column("source", lambda row: row["source"]),
)
_DETAILS: Final = (
    field_column("setting", "name"),
    Column("value", lambda setting: _text(setting.value)),
    field_column("source", "source"),
    Column("default", lambda setting: _text(setting.default)),
    field_column("variable", "variable"),
)


@service_command
def ls(
    session: Session,
    everything: Annotated[
        bool, typer.Option("--all", help="Also settings that have their defaults.")
    ] = False,
    service: Annotated[
        Service | None, typer.Option(help="Only those of this service. [default: all services]")
    ] = None,
) -> int:
    """List the settings that differ from their defaults, and where each comes from.

    A setting that is equal in several services has one row, which names them. Needs the role admin;
    tokens are not shown. Exit code 1: a service does not reply.

    Examples:

    \b
        mqstore config ls
        mqstore config ls --all --service query -o csv
    """
    from mqstore.client import ClientError

    first, *others = list(Service) if service is None else [service]
    rows = list(_rows(session, first, everything=everything))
    code = EXIT_OK
    for each in others:
        try:
            rows += _rows(session, each, everything=everything)
        except ClientError as error:
            refuse(f"{each.value} is not included: {error}")
            code = EXIT_FINDINGS
    session.out.items(_joined(rows), _COLUMNS)
    return code


@service_command
def get(session: Session, name: Name, service: ServiceName = Service.WRITER) -> None:
    """Show a setting: its value, its source, its default and its variable. Needs the role admin.

    Examples:

    \b
        mqstore config get fileReservedTime
        mqstore config get queryThreads --service query -o json
    """
    session.out.item(_setting(session, service, name), _DETAILS)


@service_command
def how(
    session: Session,
    name: Name,
    value: Annotated[str, typer.Argument(help="Value.")],
    service: ServiceName = Service.WRITER,
) -> int:
    """Say how a setting is changed: each is read when the services start. Changes nothing.

    The service checks the value. Exit code 2: the setting has another value, or cannot have this
    one. 0: it has this one. Topics and groups are changed by `mqstore topic update` and
    `group update`. Needs the role admin.

    Examples:

    \b
        mqstore config set fileReservedTime 168
    """
    from mqstore.client import Target

    found = _setting(session, service, name)
    wanted = session.client.setting(found.name, value, target=Target(service.value)).value
    if wanted == found.value:
        session.out.done(f"{found.name} is {text(wanted)}, from: {found.source}", found)
        return EXIT_OK
    refuse(
        f"{found.name} is {_text(found.value) or 'not set'} (from: {found.source}) and is read at"
        f" the start: set {found.variable}={text(wanted)} in the environment, or"
        f" {found.name} = {text(wanted)} in the settings file, and restart the services; on"
        f" Kubernetes: helm upgrade with the chart value settings.{found.name}={text(wanted)}"
    )
    return EXIT_REFUSED


def _rows(session: Session, service: Service, *, everything: bool) -> Iterator[dict[str, Any]]:
    from mqstore.client import Target

    for each in session.client.settings(Target(service.value)).settings:
        if everything or each.source != "default":
            yield {"service": service.value, **document(each)}


def _joined(rows: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the rows by name, with one row for services in which a setting is equal."""
    services: dict[str, list[str]] = {}
    by_rest: dict[str, dict[str, Any]] = {}
    for row in rows:
        key = json_line({**row, "service": None})
        by_rest.setdefault(key, row)
        services.setdefault(key, []).append(row["service"])
    for key, row in sorted(by_rest.items(), key=lambda each: each[1]["name"]):
        yield {**row, "service": ", ".join(services[key])}


def _setting(session: Session, service: Service, name: str) -> Setting:
    """The setting of a name in any spelling. Raises ValueError for an unknown one."""
    from mqstore.client import Target

    found = session.client.settings(Target(service.value)).settings
    folded = _fold(name)
    for each in found:
        if _fold(each.name) == folded:
            return each
    import difflib

    near = difflib.get_close_matches(name, [each.name for each in found], n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise ValueError(f"there is no setting {name[:80]!r}{hint} (`mqstore config ls --all`)")


def _fold(name: str) -> str:
    return name.replace("_", "").lower().removeprefix("mqstore")
