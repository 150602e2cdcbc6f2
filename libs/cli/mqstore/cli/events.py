"""``mqstore events``: prints the events of a store that store-writer publishes."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from mqstore.cli.output import Column
from mqstore.cli.session import Session, service_command
from mqstore.cli.times import show_time

if TYPE_CHECKING:
    from mqstore.client import StoreEvent

COLUMNS: Final = (
    Column("at", lambda event: event["atMs"], show_time, width=24),
    Column("kind", lambda event: event["kind"], width=10),
    Column("data", lambda event: _data(event)),
)
_HEAD: Final = ("id", "kind", "atMs")


@service_command
def events(
    session: Session,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Print new events as they arrive, until Ctrl-C.")
    ] = False,
    after: Annotated[
        str | None, typer.Option(help="Print only events after this one.", metavar="ID")
    ] = None,
) -> None:
    """Print the events of a store since store-writer started: at most the latest 1000.

    After a restart of store-writer the command continues; the first event is then a gap. Exit code
    0: printed; 2: refused; 3: store-writer does not answer, or is unavailable for a minute.

    Examples:

    \b
        mqstore events
        mqstore events --follow -o json
    """
    with contextlib.suppress(KeyboardInterrupt):
        found = session.client.events(after=after, seconds=None if follow else 0)
        session.out.rows(map(event_document, found), COLUMNS)


def event_document(event: StoreEvent) -> dict[str, Any]:
    """An event with its data, as it is printed."""
    return {"id": event.id, "kind": event.kind, "atMs": event.at_ms, **event.data}


def _data(event: dict[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in event.items() if name not in _HEAD)
