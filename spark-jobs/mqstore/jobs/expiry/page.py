"""A report as one self-contained HTML page: no script, no network; light and dark.

Charts are drawn in percent of their box and labelled by text beside them, so that they stay
readable on a narrow screen.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined

from mqstore.jobs.expiry import words
from mqstore.jobs.expiry.report import (
    DISK_HARMS,
    DiskForecast,
    Expiring,
    ExpiryReport,
    Risk,
    SegmentStock,
)

TOPICS_SHOWN: Final = 50
RISKS_SHOWN: Final = 100
COLOURS: Final = 6
"""Number of topics with a colour of their own; all others share one."""
OTHERS: Final = "all other topics"
CELLS_MAX: Final = 160
"""Maximum number of cells in the strip that shows the log; more segments share a cell."""
TICKS: Final = 4
LABEL_HEIGHT: Final = 7.0
"""Height of a label beside the chart of the disk, in percent of the chart."""
_HOUR_MS: Final = 3_600_000


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a bar; ``percent`` is relative to the longest bar."""

    label: str
    colour: int
    percent: float
    text: str


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar of a chart: its label, the text beside it and its parts."""

    label: str
    text: str
    parts: Sequence[Part]


@dataclass(frozen=True, slots=True)
class Cell:
    """Some segments of the strip; ``when`` is the CSS class of their horizon or of their hold."""

    percent: float
    when: str
    text: str


@dataclass(frozen=True, slots=True)
class Curve:
    """The disk's forecast: a line in a box of 100 by 100, and the places of its labels."""

    line: str
    levels: Sequence[float]
    """Distance of each disk level from the top, in percent."""
    labels: Sequence[tuple[float, str]]
    """Those distances with the labels, so far apart that none covers another."""
    ticks: Sequence[tuple[float, str]]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The main result: one or two words, and sentences, the most urgent first."""

    tag: str
    is_good: bool
    sentences: Sequence[str]


def html(report: ExpiryReport) -> str:
    """The report as an HTML page."""
    environment = Environment(
        loader=PackageLoader("mqstore.jobs.expiry", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "count": words.count,
        "size": words.size,
        "hours": words.hours,
        "span": words.span,
        "moment": words.moment,
    }
    colours = _colours(report)
    risks = report.risks_in_force
    return environment.get_template("page.html.jinja").render(
        report=report,
        risks=risks[:RISKS_SHOWN],
        risks_more=len(risks) - RISKS_SHOWN,
        rule=_rule(report),
        risk_max=max((risk.messages for risk in risks), default=1),
        verdict=verdict(risks, report),
        in_force=[each for each in report.expiring if each.is_in_force],
        what_if=_what_if(report),
        colours=colours,
        horizons=horizon_bars(report, colours),
        ages=age_bars(report, colours),
        cells=list(cells(report)),
        keeping=sorted({holder for each in report.segments for holder in each.held_by}),
        curve=None if report.disk is None else curve(report.disk),
        topics=sorted(report.topics, key=lambda each: -each.bytes)[:TOPICS_SHOWN],
        topics_more=len(report.topics) - TOPICS_SHOWN,
    )


def verdict(risks: Sequence[Risk], report: ExpiryReport) -> Verdict:
    """The main result: losses of readers, and levels of the disk that the forecast reaches."""
    losses, dangers = _losses(risks, report), _disk_dangers(report.disk)
    if losses:
        return Verdict("at risk", is_good=False, sentences=[losses, *dangers])
    longest = words.hours(max(report.horizons_hours))
    fine = f"Retention deletes no message that a reader still needs within {longest}."
    if dangers:
        return Verdict("disk fills", is_good=False, sentences=[*dangers, fine])
    return Verdict("fine", is_good=True, sentences=[fine])


def _losses(risks: Sequence[Risk], report: ExpiryReport) -> str:
    """How many messages are lost, by which readers and when; empty without risks."""
    if not risks:
        return ""
    groups = {risk.name for risk in risks if risk.kind == "group"}
    parts = []
    if groups:
        messages = sum(risk.messages for risk in risks if risk.kind == "group")
        who = next(iter(groups)) if len(groups) == 1 else f"{len(groups)} groups"
        parts.append(f"{words.count(messages)} messages not consumed by {who}")
    for kind, what in (("half", "undecided half messages"), ("delay", "undelivered messages")):
        messages = sum(risk.messages for risk in risks if risk.kind == kind)
        if messages:
            parts.append(f"{words.count(messages)} {what}")
    first = min((risk.goes_ms for risk in risks if risk.goes_ms is not None), default=None)
    when = "" if first is None else _when(first, report.made_ms)
    what = " and ".join(filter(None, [", ".join(parts[:-1]), parts[-1]]))
    return f"{what} will be deleted, the first {when}."


def _disk_dangers(disk: DiskForecast | None) -> list[str]:
    """A sentence for each harmful level that the forecast of the disk reaches."""
    return [
        f"The disk {_passes(level.percent, level.reached_in_hours or 0)}:"
        f" {DISK_HARMS[level.setting]}."
        for level in (() if disk is None else disk.dangers)
    ]


def _passes(percent: int, hours: float) -> str:
    return f"passes {percent} % in {words.hours(hours)}" if hours else f"is above {percent} %"


def _when(moment_ms: int, now_ms: int) -> str:
    if moment_ms <= now_ms:
        return "now"
    return f"in {words.span(moment_ms - now_ms)}"


def _colours(report: ExpiryReport) -> dict[str, int]:
    """The largest topics, each with the number of its colour."""
    largest = sorted(report.topics, key=lambda each: (-each.bytes, each.topic))[:COLOURS]
    found = {each.topic: number for number, each in enumerate(largest)}
    return found if len(report.topics) <= COLOURS else found | {OTHERS: COLOURS}


def _parts(sums: Iterable[tuple[str, int]], colours: dict[str, int], longest: int) -> list[Part]:
    by_label: dict[str, int] = defaultdict(int)
    for topic, value in sums:
        by_label[topic if topic in colours else OTHERS] += value
    return [
        Part(label, number, 100 * by_label[label] / max(longest, 1), words.size(by_label[label]))
        for label, number in colours.items()
        if by_label[label]
    ]


def horizon_bars(report: ExpiryReport, colours: dict[str, int]) -> list[Bar]:
    """Bytes that go by the rule in force, by topic."""
    in_force = [each for each in report.expiring if each.is_in_force]
    longest = max((each.bytes for each in in_force), default=0)
    bars = []
    for each in in_force:
        sums = [
            (topic.topic, topic.bytes)
            for topic in report.topics_expiring
            if (topic.reserved_hours, topic.horizon_hours)
            == (each.reserved_hours, each.horizon_hours)
        ]
        text = f"{words.size(each.bytes)} · {words.count(each.messages)} messages"
        bars.append(Bar(words.hours(each.horizon_hours), text, _parts(sums, colours, longest)))
    return bars


def age_bars(report: ExpiryReport, colours: dict[str, int]) -> list[Bar]:
    """Bytes by age; classes at the end that nothing is in are left out."""
    classes: dict[tuple[int, int | None], list[tuple[str, int]]] = defaultdict(list)
    for each in report.ages:
        classes[each.from_hours, each.to_hours].append((each.topic, each.bytes))
    longest = max((sum(size for _, size in sums) for sums in classes.values()), default=0)
    bars = []
    for (start, stop), sums in sorted(classes.items(), key=lambda found: found[0][0]):
        to = "" if stop is None else words.hours(stop)
        label = f"over {words.hours(start)}" if stop is None else f"up to {to}"
        total = sum(size for _, size in sums)
        bars.append(Bar(label, words.size(total), _parts(sums, colours, longest)))
    return bars


def cells(report: ExpiryReport) -> Iterable[Cell]:
    """The log from its oldest segment to the newest."""
    segments = report.segments
    share = -(-len(segments) // CELLS_MAX) or 1
    total = max(1, sum(each.end - each.start for each in segments))
    for at in range(0, len(segments), share):
        found = segments[at : at + share]
        first = found[0]
        size = sum(each.end - each.start for each in found)
        yield Cell(100 * size / total, _class_of(first, report), _describe(found, report))


def _class_of(segment: SegmentStock, report: ExpiryReport) -> str:
    if segment.why == "newest":
        return "newest"
    if segment.not_before_ms is None:
        return "held"
    for number, hours in enumerate(report.horizons_hours):
        if segment.not_before_ms <= report.made_ms + hours * _HOUR_MS:
            return f"h{min(number, 3)}"
    return "later"


def _describe(found: Sequence[SegmentStock], report: ExpiryReport) -> str:
    name = found[0].name if len(found) == 1 else f"{found[0].name} to {found[-1].name}"
    messages = words.count(sum(each.messages for each in found))
    first = found[0]
    if first.not_before_ms is not None:
        fate = f"goes {_when(first.not_before_ms, report.made_ms)}"
    elif first.held_by:
        fate = "kept by " + ", ".join(first.held_by)
    else:
        fate = "stays: " + first.why.value
    return f"{name}: {messages} messages, {fate}"


def curve(disk: DiskForecast) -> Curve:
    """The chart of a disk's forecast."""
    points = disk.used_by_hour
    last = max(1, len(points) - 1)

    def height(used: float) -> float:
        """Return the height of a point in percent, from the top."""
        return round(100 - 100 * min(1.0, used / max(1, disk.total_bytes)), 2)

    line = " ".join(f"{100 * at / last:.2f},{height(used)}" for at, used in enumerate(points))
    levels = [height(level.percent * disk.total_bytes / 100) for level in disk.levels]
    labels = [f"{level.percent} %" for level in disk.levels]
    ticks = [
        (100 * tick / TICKS, "now" if not tick else words.hours(last * tick / TICKS))
        for tick in range(TICKS + 1)
    ]
    return Curve(line, levels, list(zip(_apart(levels), labels, strict=True)), ticks)


def _apart(places: Sequence[float]) -> list[float]:
    """Places from the top, moved down where a higher one is nearer than a label is high."""
    found = list(places)
    order = sorted(range(len(places)), key=places.__getitem__)
    for above, below in pairwise(order):
        found[below] = max(found[below], found[above] + LABEL_HEIGHT)
    return found


def _rule(report: ExpiryReport) -> dict[str, str]:
    """The settings of retention, with their units."""
    return {
        name: _with_unit(name, value)
        for name, value in report.rule.model_dump(by_alias=True).items()
    } | ({} if report.rule.deletes else {"fileReservedTime": "none: retention=false"})


def _with_unit(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name == "fileReservedTime":
        return words.hours(value)
    if name == "cleanFileForciblyMinAge":
        return words.span(value)
    return f"{value} %" if name.endswith("Ratio") else value or words.NOTHING


def _what_if(report: ExpiryReport) -> dict[int, list[Expiring]]:
    """Expiring messages by fileReservedTime; empty if the report compares no other values."""
    found: dict[int, list[Expiring]] = defaultdict(list)
    for each in report.expiring:
        found[each.reserved_hours].append(each)
    return dict(found) if len(found) > 1 else {}
