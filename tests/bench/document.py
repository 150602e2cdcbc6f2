"""The table of docs/benchmarks.md, which a whole run replaces: the rows that users meet."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.bench.harness import Row, markdown, rate_pair, ratio_text, spread_text

BEGIN: Final = "<!-- latest run: written by make bench -->"
END: Final = "<!-- end of the latest run -->"

_CONNECTIONS: Final = ("1 connection", "8 connections", "32 connections")
_TRANSACTIONS: Final = ("transactions 1 KiB", "transactions 1 KiB through the coordinator")
SHOWN: Final = (
    *(f"lean sends 1 KiB, {each}" for each in _CONNECTIONS),
    *(f"lean sends 1 KiB, {each}, sync flush" for each in _CONNECTIONS),
    *(f"lean sends 1 KiB in batches of 100, {each}" for each in _CONNECTIONS),
    *(f"lean replicated sends 1 KiB, disk, {each}" for each in _CONNECTIONS),
    *(f"lean replicated sends 1 KiB, page cache, {each}" for each in _CONNECTIONS),
    *(f"lean {name}, {each}" for name in _TRANSACTIONS for each in _CONNECTIONS),
    *(f"lean {name}, {each}, sync flush" for name in _TRANSACTIONS for each in _CONNECTIONS),
    "lean pulls of 32, 1 reader",
    "lean pulls of 32, 8 readers",
    "lean look-ups by id, 8 connections",
    "lean offsets by time, 8 connections",
    "shared receive and ack of 32, 8 consumers",
    "shared, from send to receive at half of the peak, p99",
    "1,000 consumers that wait, server's cost",
    "loop of the client",
    "loop of the client for asyncio",
    "client.produce, one by one",
    "producer.send",
    "append 1 KiB, acknowledged",
    "recovery after a halt of the machine, queues and index deleted, 1024 MiB",
    "index rebuilt by Spark, 1024 MiB of 1024 B bodies, 2 cores, warm",
    "query ready, 100 segments",
)
"""The headline figures of the page; all others are in build/bench.json."""
_COSTS: Final = ("server's cost", "cost")


def summary(rows: Sequence[Row]) -> str:
    """The table of ``SHOWN``: rate, processor time and latency of a row on one line."""
    by_name = {row.name: row for row in rows}
    head = ("row", "unit", "mqstore", "peer", "ratio", "spread", "µs of CPU", "p99, ms")
    lines = [_line(by_name, by_name[name]) for name in SHOWN if name in by_name]
    return markdown([head, ["---", "---", *["--:"] * 6], *lines])


def missing(rows: Sequence[Row]) -> list[str]:
    """The rows of the page's table that a run does not have."""
    measured = {row.name for row in rows}
    return [name for name in SHOWN if name not in measured]


def _line(rows: dict[str, Row], row: Row) -> list[str]:
    costs = filter(None, (rows.get(f"{row.name}, {each}") for each in _COSTS))
    figures = [next(costs, None), rows.get(f"{row.name}, p99")]
    pairs = ["" if each is None else rate_pair(each.ours, each.peer) for each in figures]
    main = [rate_pair(row.ours, None), rate_pair(None, row.peer)]
    return [row.name, row.unit, *main, ratio_text(row.ratio), spread_text(row.spread), *pairs]


def write(path: Path, text: str) -> None:
    """Replace what is between the markers. Raises ValueError when the page has none."""
    before, after = split(path)
    path.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}", encoding="utf-8")


def split(path: Path) -> tuple[str, str]:
    """The texts before and after the marked part. Raises ValueError when the page has none."""
    before, begin, rest = path.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{path} has no lines {BEGIN!r} and {END!r}")
    return before, after
