"""How a benchmark is run and reported.

Machines are noisy, so ours and the peer run in turn, round by round, and what is reported is the
median of each and the ratio of the rounds with its spread. Above 1 ours is ahead.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

ROUNDS = 5


@dataclass(frozen=True)
class Row:
    """One line of the table. Without a peer, ``peer``, ``ratio`` and ``spread`` are None."""

    name: str
    unit: str
    ours: float
    peer: float | None = None
    ratio: float | None = None
    spread: tuple[float, float] | None = None


def paired(
    name: str,
    unit: str,
    ours: Callable[[], float],
    peer: Callable[[], float] | None,
    *,
    higher_is_better: bool = True,
    rounds: int = ROUNDS,
) -> Row:
    """Run both in turn and compare them round by round."""
    mine: list[float] = []
    theirs: list[float] = []
    for _ in range(rounds):
        mine.append(ours())
        if peer is not None:
            theirs.append(peer())
    if not theirs:
        return Row(name, unit, statistics.median(mine))
    pairs = zip(mine, theirs, strict=True)
    ratios = sorted(a / b if higher_is_better else b / a for a, b in pairs)
    return Row(
        name,
        unit,
        statistics.median(mine),
        statistics.median(theirs),
        statistics.median(ratios),
        (ratios[0], ratios[-1]),
    )


def table(rows: list[Row]) -> str:
    """The rows as a Markdown table."""
    lines = ["| row | unit | mqstore | RocketMQ | ratio | spread |", "|---|---|---|---|---|---|"]
    for row in rows:
        peer = "-" if row.peer is None else f"{row.peer:,.3g}"
        ratio = "-" if row.ratio is None else f"{row.ratio:.2f}"
        spread = "-" if row.spread is None else f"{row.spread[0]:.2f}-{row.spread[1]:.2f}"
        lines.append(f"| {row.name} | {row.unit} | {row.ours:,.3g} | {peer} | {ratio} | {spread} |")
    return "\n".join(lines)


def write(rows: list[Row], path: Path) -> None:
    """Write the rows as JSON for other programs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([asdict(row) for row in rows], indent=2) + "\n")
