"""How a benchmark is run and reported.

Machines are noisy, so ours and the peer run in turn, round by round. The report has the median of
each, and the median of the rounds' ratios with their spread. Above 1 ours is ahead, whether more or
less is better. Before the rounds that count, each side warms up: by one round, or by short rounds
until the server's cost stops falling.
"""

from __future__ import annotations

import gc
import json
import os
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from tests.bench.failures import SideError
from tests.bench.lean import Limits
from tests.bench.memory import PeakMemory
from tests.bench.rocketmq import Peer

_MEMORY: Final = "peak memory"
COST: Final = "server"
"""The figure that must stop falling before a warm-up ends: the server's time per message."""
FALL: Final = 0.97
"""A round of a warm-up whose cost is above this share of the least one before did not fall."""
STEADY_ROUNDS: Final = 3
"""Rounds in a row whose cost did not fall end a warm-up."""
WARM_UP_ROUNDS: Final = 40
"""A warm-up ends after so many rounds at the latest."""

Figures = Mapping[str, float]
Side = Callable[[], Figures]
"""One round of one side: sets up, times what is meant, cleans up; figures by metric key."""
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Setting:
    """The parameters of every benchmark."""

    directory: Path
    """Scratch room on the disk that is meant."""
    peer: Peer | None
    records: int
    """Records of one round of appends; other counts are derived from it."""
    log_mib: int
    """Size of the existing log that is rebuilt; a quarter of it is read."""
    round: Limits
    """The end of a round of the lean client."""


@dataclass(frozen=True)
class Metric:
    """One figure of a benchmark, which is one row of the table."""

    key: str
    name: str
    unit: str
    higher_is_better: bool = True
    record_size: int | None = None
    """Bytes of the bodies that a rate counts; gives the row its MB/s."""


def cost(name: str) -> Metric:
    """The row of the processor time of a process that is client and server in one."""
    return Metric("cost", f"{name}, cost", "µs a message", higher_is_better=False)


@dataclass(frozen=True)
class Bench:
    """One measurement of ours, of the peer if there is one, and of the bare disk if that bounds it.

    The peer and the disk may leave metrics out.
    """

    metrics: Sequence[Metric]
    ours: Side
    peer: Side | None = None
    disk: Side | None = None
    processes: Mapping[str, Sequence[int]] | None = None
    """Processes whose peak memory counts, if the sides are processes of their own."""
    warm_up: Mapping[str, Side] | None = None
    """Short rounds of each side by its name, with the figure COST; None: one round warms up."""


@dataclass(frozen=True)
class Row:
    """One line of the table; what was not measured is None."""

    name: str
    unit: str
    ours: float
    peer: float | None = None
    ratio: float | None = None
    """How far ours is ahead of the peer: the median over the rounds, and its spread."""
    spread: tuple[float, float] | None = None
    disk: float | None = None
    of_disk: float | None = None
    """How near ours comes to the disk."""
    ours_mb: float | None = None
    """Million bytes of bodies a second, where the row is a rate of messages."""
    peer_mb: float | None = None


def measure(
    bench: Bench,
    rounds: int,
    progress: Progress,
    processes: Mapping[str, Sequence[int]] | None = None,
) -> list[Row]:
    """Run all sides in turn, the first one changing from round to round.

    ``processes`` are the process ids of the sides whose peak memory gets a row.
    """
    processes = (processes or {}) if bench.processes is None else bench.processes
    sides = {"ours": bench.ours, "peer": bench.peer, "disk": bench.disk}
    order = [name for name, side in sides.items() if side is not None]
    figures: dict[str, list[Figures]] = {name: [] for name in sides}
    for number in range(rounds + 1):
        for name in order if number % 2 else reversed(order):
            turn = f"round {number} of {rounds}" if number else "warming up"
            progress(f"{bench.metrics[0].name}: {turn}, {name}")
            with _named(bench, name):
                if number:
                    figures[name].append(_settled(sides[name], processes.get(name)))
                elif bench.warm_up is None:
                    _settled(sides[name], processes.get(name))
                elif name in bench.warm_up:
                    warm_up(bench.warm_up[name])
    rows = [_row(metric, figures) for metric in bench.metrics]
    return [*rows, _row(_memory_of(bench), figures)] if processes else rows


def warm_up(side: Side) -> int:
    """Run rounds of a side until its cost stops falling; return their number."""
    least, steady = float("inf"), 0
    for number in range(1, WARM_UP_ROUNDS + 1):
        cost = side()[COST]
        steady = 0 if cost < least * FALL else steady + 1
        least = min(least, cost)
        if steady == STEADY_ROUNDS:
            return number
    return WARM_UP_ROUNDS


@contextmanager
def _named(bench: Bench, side: str) -> Iterator[None]:
    """Name the row and the side in the error of one that failed."""
    try:
        yield
    except SideError as error:
        raise SideError(f"{bench.metrics[0].name}: {side}: {error}") from error


def _settled(side: Side | None, process_ids: Sequence[int] | None) -> Figures:
    """A round that does not pay for what the one before left in memory."""
    assert side is not None
    os.sync()
    gc.collect()
    if process_ids is None:
        return side()
    with PeakMemory(process_ids) as memory:
        figures = side()
    return {**figures, _MEMORY: memory.peak_mib}


def _memory_of(bench: Bench) -> Metric:
    name = f"{bench.metrics[0].name}, peak private memory"
    return Metric(_MEMORY, name, "MiB", higher_is_better=False)


def _row(metric: Metric, figures: Mapping[str, Sequence[Figures]]) -> Row:
    ours, peer, disk = (_values(figures[name], metric.key) for name in ("ours", "peer", "disk"))
    ahead = _ratios(ours, peer, metric) if peer else None
    median_ours = statistics.median(ours)
    median_peer = statistics.median(peer) if peer else None
    return Row(
        metric.name,
        metric.unit,
        median_ours,
        median_peer,
        statistics.median(ahead) if ahead else None,
        (min(ahead), max(ahead)) if ahead else None,
        statistics.median(disk) if disk else None,
        statistics.median(_ratios(ours, disk, metric)) if disk else None,
        _megabytes(median_ours, metric),
        _megabytes(median_peer, metric),
    )


def _megabytes(rate: float | None, metric: Metric) -> float | None:
    if rate is None or metric.record_size is None:
        return None
    return rate * metric.record_size / 1e6


def _values(rounds: Sequence[Figures], key: str) -> list[float]:
    return [figures[key] for figures in rounds if key in figures]


def _ratios(ours: list[float], theirs: list[float], metric: Metric) -> list[float]:
    pairs = zip(ours, theirs, strict=True)
    return [a / b if metric.higher_is_better else b / a for a, b in pairs]


def table(rows: Sequence[Row], peer_name: str) -> str:
    """The rows as a Markdown table, without the columns in which every row is empty."""
    columns = (
        ("row", "---", [row.name for row in rows]),
        ("unit", "---", [row.unit for row in rows]),
        ("mqstore", "--:", [_figure(row.ours) for row in rows]),
        (peer_name, "--:", [_figure(row.peer) for row in rows]),
        ("ratio", "--:", [ratio_text(row.ratio) for row in rows]),
        ("spread", "--:", [spread_text(row.spread) for row in rows]),
        ("MB/s, ours and its", "--:", [rate_pair(row.ours_mb, row.peer_mb) for row in rows]),
        ("disk", "--:", [_figure(row.disk) for row in rows]),
        ("of the disk", "--:", [ratio_text(row.of_disk) for row in rows]),
    )
    filled = [column for column in columns if any(column[2])]
    lines = [[name for name, _, _ in filled], [rule for _, rule, _ in filled]]
    lines += map(list, zip(*(cells for _, _, cells in filled), strict=True))
    return markdown(lines)


def markdown(lines: Sequence[Sequence[str]]) -> str:
    """Lines of cells as a Markdown table; the second one has the rules of the columns."""
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def spread_text(spread: tuple[float, float] | None) -> str:
    """The least and the greatest ratio of the rounds."""
    return "" if spread is None else f"{spread[0]:.2f} … {spread[1]:.2f}"


def rate_pair(ours: float | None, peer: float | None) -> str:
    """Our figure and the peer's in one cell."""
    return " · ".join(filter(None, (_figure(ours), _figure(peer))))


def _figure(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def ratio_text(value: float | None) -> str:
    """A ratio in two decimals; nothing for None."""
    return "" if value is None else f"{value:.2f}"


def write(rows: Sequence[Row], machine: Mapping[str, str], path: Path) -> None:
    """Write machine and rows as JSON for other programs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {"machine": dict(machine), "rows": [asdict(row) for row in rows]}
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
