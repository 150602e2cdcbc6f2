"""The samples of a soak over time: lines of blocks for the terminal, and an SVG."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

BLOCKS: Final = "▁▂▃▄▅▆▇█"
BINS: Final = 180
"""Values of one line; each is the median of its part of the time."""
WIDTH, HEIGHT, LEFT, RIGHT, GAP, TOP = 720, 110, 60, 190, 34, 46
COLOURS: Final = ("#1f77b4", "#ff7f0e", "#2ca02c", "#d62728")

Points = Sequence[tuple[float, float]]
"""Seconds and values."""


@dataclass(frozen=True)
class Panel:
    """Lines of one unit over the same time."""

    title: str
    lines: Mapping[str, Points]


def sparkline(values: Sequence[float], width: int = 60) -> str:
    """One block for each part of the time, from zero to the greatest value."""
    top = max(values) or 1
    count = min(width, len(values))
    parts = [values[at * len(values) // count] for at in range(count)]
    return "".join(BLOCKS[int(value / top * (len(BLOCKS) - 1))] for value in parts)


def svg(
    title: str, panels: Sequence[Panel], seconds: float, bands: Sequence[tuple[float, float]]
) -> str:
    """The panels under each other, over the same time from zero up; ``bands`` of time are grey."""
    height = TOP + len(panels) * (HEIGHT + GAP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + RIGHT}" height="{height}"'
        ' font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="white"/>',
        f'<text x="{LEFT}" y="16">{title}</text>',
    ]
    for number, panel in enumerate(panels):
        parts.append(f'<g transform="translate({LEFT} {TOP + number * (HEIGHT + GAP)})">')
        parts += _panel(panel, seconds, bands)
        parts.append("</g>")
    return "\n".join([*parts, "</svg>\n"])


def _panel(panel: Panel, seconds: float, bands: Sequence[tuple[float, float]]) -> Iterator[str]:
    top = max((value for points in panel.lines.values() for _, value in points), default=0) or 1
    for begin, end in bands:
        left, right = (min(each, seconds) / seconds * WIDTH for each in (begin, end))
        width = f"{right - left:.1f}"
        yield f'<rect x="{left:.1f}" width="{width}" height="{HEIGHT}" fill="#eee"/>'
    yield f'<text y="-6" font-weight="bold">{panel.title}</text>'
    yield f'<path stroke="#888" fill="none" d="M0 0V{HEIGHT}H{WIDTH}"/>'
    yield f'<text x="-6" y="10" text-anchor="end">{top:.3g}</text>'
    yield f'<text x="-6" y="{HEIGHT}" text-anchor="end">0</text>'
    yield f'<text x="{WIDTH}" y="{HEIGHT + 14}" text-anchor="end">{_time(seconds)}</text>'
    for row, ((name, points), colour) in enumerate(zip(panel.lines.items(), COLOURS, strict=False)):
        drawn = " ".join(
            f"{at / seconds * WIDTH:.1f},{HEIGHT * (1 - value / top):.1f}"
            for at, value in _binned(points, seconds)
        )
        yield f'<polyline fill="none" stroke="{colour}" points="{drawn}"/>'
        yield f'<text x="{WIDTH + 8}" y="{12 + 16 * row}" fill="{colour}">{name}</text>'


def _binned(points: Points, seconds: float) -> Iterator[tuple[float, float]]:
    """The median of each part of the time that has values."""
    bins: dict[int, list[float]] = {}
    for at, value in points:
        bins.setdefault(min(int(at / seconds * BINS), BINS - 1), []).append(value)
    for number, values in sorted(bins.items()):
        yield (number + 0.5) / BINS * seconds, statistics.median(values)


def _time(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 120 else f"{seconds:.0f} s"
