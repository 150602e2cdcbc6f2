"""``mqstore top``: a live view of rates, lags and disks."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from mqstore.cli.output import Column, rich_table, size
from mqstore.cli.session import Session, service_command
from mqstore.cli.times import duration

if TYPE_CHECKING:
    from rich.console import RenderableType

    from mqstore.client import Client, Store, TopicSum

INTERVAL_S: Final = 2.0
ROWS: Final = 20
"""Maximum number of groups and topics in the view; those with the largest lag."""
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


@service_command
def top(
    session: Session,
    interval: Annotated[
        float, typer.Option(min=0.1, help="Seconds between two looks.")
    ] = INTERVAL_S,
    looks: Annotated[
        int | None, typer.Option("-n", min=1, help="Stop after so many. [default: Ctrl-C]")
    ] = None,
) -> None:
    """Show live rates, lags and disk, until Ctrl-C.

    On a terminal the view fills the screen. In a pipe and in JSON each look is printed.

    Examples:

    \b
        mqstore top
        mqstore top --interval 10 -o json >> load.jsonl
    """
    samples = _samples(session.client, interval, looks)
    with contextlib.suppress(KeyboardInterrupt):
        if session.out.is_table and session.out.is_terminal:
            _show(samples)
        else:
            for document in samples:
                _print(session, document)


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
        "groups": sorted(rows, key=lambda row: -row["lag"])[:ROWS],
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


def _samples(client: Client, interval_s: float, looks: int | None) -> Iterator[dict[str, Any]]:
    before: Sample | None = None
    for number in count(1):
        now = _sample(client)
        yield view(before, now)
        if number == looks:
            return
        before = now
        time.sleep(interval_s)


def _sample(client: Client) -> Sample:
    lags: dict[tuple[str, str], TopicSum] = {}
    cursor: str | None = None
    while True:
        page = client.lags(cursor=cursor)
        lags |= {(each.group, topic.topic): topic for each in page.groups for topic in each.topics}
        cursor = page.next
        if cursor is None:
            return Sample(time.monotonic(), client.store(), lags)


def _print(session: Session, document: dict[str, Any]) -> None:
    if session.out.is_table:
        session.out.line(head(document))
        session.out.items(document["groups"], _COLUMNS)
        session.out.line("", flush=True)
    elif session.out.is_document:
        session.out.rows([document], ())
    else:
        session.out.rows(document["groups"], _COLUMNS)


def _show(samples: Iterator[dict[str, Any]]) -> None:
    from rich.live import Live  # slow to import, and needed on a terminal only

    with Live(screen=True, auto_refresh=False) as live:
        for document in samples:
            live.update(_screen(document), refresh=True)


def _screen(document: dict[str, Any]) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    cells = [[column.cell(row) for column in _COLUMNS] for row in document["groups"]]
    return Group(Text(head(document), style="bold"), Text(), rich_table(cells, _COLUMNS))
