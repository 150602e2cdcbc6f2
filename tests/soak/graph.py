"""Memory over time: a line of blocks for the terminal, and an SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

_BLOCKS: Final = "▁▂▃▄▅▆▇█"
_WIDTH: Final = 900
_HEIGHT: Final = 300
_MARGIN: Final = 50
_COLOURS: Final = ("#1f77b4", "#ff7f0e", "#2ca02c", "#d62728")


def sparkline(values: Sequence[float], width: int = 60) -> str:
    """One block for each part of the time, from zero to the greatest value."""
    top = max(values) or 1
    count = min(width, len(values))
    parts = [values[at * len(values) // count] for at in range(count)]
    return "".join(_BLOCKS[int(value / top * (len(_BLOCKS) - 1))] for value in parts)


def svg(lines: Mapping[str, Sequence[float]], seconds: float, unit: str) -> str:
    """One line for each name over the same time, from zero up."""
    top = max(max(values) for values in lines.values()) or 1
    drawn = [
        f'<polyline fill="none" stroke="{colour}" points="{_points(values, top)}"/>'
        f'<text x="{_MARGIN + 10}" y="{20 + 16 * row}" fill="{colour}">{name}</text>'
        for row, ((name, values), colour) in enumerate(zip(lines.items(), _COLOURS, strict=False))
    ]
    axis = (
        f'<path stroke="#888" fill="none" d="M{_MARGIN} 0V{_HEIGHT}H{_MARGIN + _WIDTH}"/>'
        f'<text x="2" y="14">{top:.0f}</text><text x="2" y="{_HEIGHT}">0 {unit}</text>'
        f'<text x="{_MARGIN + _WIDTH - 60}" y="{_HEIGHT + 20}">{seconds:.0f} s</text>'
    )
    size = f'width="{_WIDTH + 2 * _MARGIN}" height="{_HEIGHT + 30}"'
    style = 'font-family="sans-serif" font-size="13"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>{axis}{"".join(drawn)}</svg>\n'


def _points(values: Sequence[float], top: float) -> str:
    step = _WIDTH / max(len(values) - 1, 1)
    return " ".join(
        f"{_MARGIN + at * step:.1f},{_HEIGHT * (1 - value / top):.1f}"
        for at, value in enumerate(values)
    )
