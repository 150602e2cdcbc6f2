"""``mqstore top``: a live view of rates, lags and disks."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from mqstore.cli.exit_codes import refuse
from mqstore.cli.output import Column, printable, rich_table, size
from mqstore.cli.session import Session, service_command
from mqstore.cli.times import duration

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

    from mqstore.client import Client, Store, TopicSum

INTERVAL_S: Final = 2.0
ROWS: Final = 20
"""Maximum number of groups and topics in the view; those with the largest lag."""
QUIT: Final = "q"
ORDERS: Final[Mapping[str, tuple[str, Callable[[dict[str, Any]], Any]]]] = {
    "l": ("lag", lambda row: -row["lag"]),
    "o": ("oldest", lambda row: -(row["lagMs"] or 0)),
    "g": ("group", lambda row: (row["group"], row["topic"])),
}
"""Orders of the rows, by key."""
_COLUMNS: Final = (
    Column("group", lambda row: row["group"], width=24),
    Column("topic", lambda row: row["topic"], width=24),
    Column("lag", lambda row: row["lag"], right=True, width=10),
    Column("change", lambda row: row["lagPerS"], lambda n: f"{n:+.1f}/s", right=True, width=10),
    Column("oldest", lambda row: row["lagMs"], duration, right=True, width=8),
)


@dataclass(frozen=True, slots=True)
class Sample:
    """The state at one moment."""

    at_s: float
    """Time of a monotonic clock."""
    store: Store
    lags: Mapping[tuple[str, str], TopicSum] = field(default_factory=dict)
    """By group and topic."""
    trouble: tuple[str, ...] = ()
    """Shards that did not reply, with the reason."""


@service_command
def top(
    session: Session,
    interval: Annotated[
        float, typer.Option(min=0.1, help="Seconds between two looks.")
    ] = INTERVAL_S,
    looks: Annotated[
        int | None, typer.Option("-n", min=1, help="Stop after so many. [default: q or Ctrl-C]")
    ] = None,
) -> None:
    """Show live rates, lags and disk, until q or Ctrl-C.

    On a terminal the view fills the screen; its last line has the keys. In a pipe and in JSON each
    look is printed. A service that does not reply is named, and the next look tries again.

    Examples:

    \b
        mqstore top
        mqstore top --interval 10 -o json >> load.jsonl
    """
    watch = Watch(session.client)
    with contextlib.suppress(KeyboardInterrupt):
        if session.out.is_table and session.out.is_terminal:
            _show(watch, interval, looks)
        else:
            for number in count(1):
                _print(session, watch.look())
                if number == looks:
                    return
                time.sleep(interval)


class Watch:
    """Looks at a system again and again. A failed look keeps the state of the last one."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._before: Sample | None = None
        self._shown: dict[str, Any] | None = None

    def look(self) -> dict[str, Any]:
        """The state now. Raises the client's error if the first look fails."""
        from mqstore.client import ClientError

        try:
            now = _sample(self._client)
        except ClientError as error:
            if self._shown is None:
                raise
            return {**self._shown, "trouble": [str(error)]}
        self._shown, self._before = view(self._before, now), now
        return self._shown


def view(before: Sample | None, now: Sample) -> dict[str, Any]:
    """The state at one moment, with rates since the one before; None without one."""
    store = now.store
    seconds = None if before is None else max(1e-9, now.at_s - before.at_s)

    def per_s(later: float, earlier: float | None) -> float | None:
        """The change a second; None without an earlier value."""
        return None if seconds is None or earlier is None else (later - earlier) / seconds

    rows: list[dict[str, Any]] = [
        {
            "group": group,
            "topic": topic,
            "lag": found.lag,
            "lagPerS": per_s(found.lag, _lag_of(before, (group, topic))),
            "lagMs": found.lag_ms,
        }
        for (group, topic), found in now.lags.items()
    ]
    return {
        "shard": store.shard,
        "health": store.health,
        "logBytes": store.max_offset - store.min_offset,
        "bytesPerS": per_s(store.max_offset, None if before is None else before.store.max_offset),
        "notOnDisk": store.flush_behind,
        "diskUsedPercent": round(100 * store.disk_used / max(1, store.disk_total), 1),
        "diskFree": store.disk_free,
        "groups": sorted(rows, key=ORDERS["l"][1])[:ROWS],
        "trouble": list(now.trouble),
    }


def head(document: Mapping[str, Any]) -> str:
    """The line above the groups."""
    rate = document["bytesPerS"]
    return (
        f"shard {document['shard']} {document['health']}   log {size(document['logBytes'])}"
        f"   written {'-' if rate is None else size(rate)}/s"
        f"   not on disk {size(document['notOnDisk'])}"
        f"   disk {document['diskUsedPercent']} %, {size(document['diskFree'])} free"
    )


def _lag_of(sample: Sample | None, name: tuple[str, str]) -> int | None:
    found = None if sample is None else sample.lags.get(name)
    return None if found is None else found.lag


def _sample(client: Client) -> Sample:
    lags: dict[tuple[str, str], TopicSum] = {}
    trouble: dict[int, str] = {}
    cursor: str | None = None
    while True:
        page = client.lags(cursor=cursor)
        lags |= {(each.group, topic.topic): topic for each in page.groups for topic in each.topics}
        if page.shards is not None:
            trouble |= {number: page.shards.why[str(number)] for number in page.shards.missing}
        cursor = page.next
        if cursor is None:
            break
    texts = (f"shard {number} is not included: {why}" for number, why in trouble.items())
    return Sample(time.monotonic(), client.store(), lags, tuple(texts))


def _print(session: Session, document: dict[str, Any]) -> None:
    if session.out.is_table:
        session.out.line(head(document))
        for text in document["trouble"]:
            refuse(text)
        session.out.items(document["groups"], _COLUMNS)
        session.out.line("", flush=True)
    elif session.out.is_document:
        session.out.rows([document], ())
    else:
        session.out.rows(document["groups"], _COLUMNS)


def _show(watch: Watch, interval_s: float, looks: int | None) -> None:
    """Fill the screen, until the key q or the last look."""
    from rich.console import (
        Console,
        ConsoleDimensions,
    )  # slow to import, and needed on a terminal only
    from rich.live import Live

    from mqstore.cli.keyboard import keyboard

    order = "l"
    document = watch.look()
    console = Console()

    def draw() -> None:
        """Draw in the present size: COLUMNS and LINES, which rich prefers, stay after a resize."""
        columns, lines = os.get_terminal_size(sys.stdout.fileno())
        if columns and lines:
            console.size = ConsoleDimensions(columns, lines)
        live.update(screen(document, order), refresh=True)

    with keyboard() as keys, Live(console=console, screen=True, auto_refresh=False) as live:
        for number in count(1):
            draw()
            if number == looks:
                return
            for key in keys.presses(interval_s):
                if key == QUIT:
                    return
                order = key if key in ORDERS else order
                draw()
            document = watch.look()


def screen(document: Mapping[str, Any], order: str) -> RenderableType:
    """The view for a screen of any size: its last line has the keys, below the rows that fit."""
    from rich.console import Group
    from rich.text import Text

    rows = sorted(document["groups"], key=ORDERS[order][1])
    cells = [[column.cell(row) for column in _COLUMNS] for row in rows]
    keys = "  ".join(f"{key}: by {name}" for key, (name, _) in ORDERS.items())
    return Footed(
        Group(
            Text(head(document), style="bold"),
            *(Text(printable(text), style="bold red") for text in document["trouble"]),
            Text(),
            rich_table(cells, _COLUMNS),
            Text(),
        ),
        Text(f"{QUIT}: quit  {keys}", style="dim"),
    )


@dataclass(frozen=True, slots=True)
class Footed:
    """A body of which as many lines are drawn as fit on the screen above the foot."""

    body: RenderableType
    foot: RenderableType

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the lines of both, at most as many as the screen has."""
        from rich.segment import Segment

        height, options = options.size.height, options.reset_height()
        foot = console.render_lines(self.foot, options)[:height]
        body = console.render_lines(self.body, options)[: height - len(foot)]
        for line in body + foot:
            yield from line
            yield Segment.line()
