"""Makes an expiry report from the facts of a shard and the counts of its log."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from mqstore.jobs.expiry import forecast, losses
from mqstore.jobs.expiry.counts import AGES_H, Count
from mqstore.jobs.expiry.facts import ShardFacts
from mqstore.jobs.expiry.log_counts import Going, LogCounts
from mqstore.jobs.expiry.losses import Loss, Places
from mqstore.jobs.expiry.report import (
    AgeClass,
    Expiring,
    ExpiryReport,
    Risk,
    SegmentStock,
    TopicExpiring,
    TopicStock,
)
from mqstore.storage.formats import HALF_TOPIC
from mqstore.storage.retention import PlannedSegment, RetentionPlan, RetentionRule

_HOUR_MS = 3_600_000
Undecided = Callable[[], list[Count]]
"""Counts half messages without a decision, by the segment of their newest copy and by topic."""


@dataclass(frozen=True, slots=True)
class ReportRequest:
    """The horizons of a report, and the values of fileReservedTime to compare."""

    horizons: tuple[int, ...]
    """Hours from now, ascending."""
    what_if: tuple[int, ...] = ()
    """Other values of fileReservedTime, in hours."""


def make(
    facts: ShardFacts,
    places: Places,
    counts: LogCounts,
    undecided: Undecided,
    request: ReportRequest,
    where: str,
) -> ExpiryReport:
    """Make the report; calls ``undecided`` only if the log holds half messages."""
    ages = counts.by_topic()
    held = losses.holds(facts, places, counts.by_place())
    in_force = facts.config.file_reserved_time
    hours = [in_force, *(each for each in request.what_if if each != in_force)]
    plans = [facts.planned(held, each) for each in hours]
    going = list(_going(facts, plans, request.horizons))
    halves = undecided() if any(each.topic == HALF_TOPIC for each in ages) else []
    sections = _Sections(facts, hours, plans, request.horizons)
    lost = losses.losses(facts, places, counts.going_by_place(going))
    _add_halves(lost, halves, going)
    risks = sections.risks(lost)
    topics = counts.going_by_topic(going)
    stocks = _stocks(ages, places)
    disk = forecast.make(facts, plans[0].segments, ages, request.horizons[-1])
    return ExpiryReport(
        made_ms=facts.now_ms,
        shard=facts.name,
        where=where,
        rule=RetentionRule.of(facts.config),
        horizons_hours=request.horizons,
        min_offset=facts.min_offset,
        max_offset=facts.max_offset,
        messages=sum(each.messages for each in stocks),
        bytes=sum(each.bytes for each in stocks),
        at_risk=any(risk.is_in_force for risk in risks),
        disk_fills=disk is not None and bool(disk.dangers),
        expiring=tuple(sections.expiring(topics, risks)),
        risks=tuple(risks),
        topics=tuple(stocks),
        topics_expiring=tuple(sections.topics(topics)),
        ages=tuple(_ages(ages)),
        segments=tuple(_segments(plans[0], counts.by_segment())),
        disk=disk,
    )


def _going(
    facts: ShardFacts, plans: Sequence[RetentionPlan], horizons: Sequence[int]
) -> Iterator[Going]:
    for number, plan in enumerate(plans):
        for segment in plan.segments:
            horizon = _horizon(segment, facts.now_ms, horizons)
            if horizon is not None and segment.not_before_ms is not None:
                yield Going(number, segment.name, horizon, segment.not_before_ms)


def _horizon(segment: PlannedSegment, now_ms: int, horizons: Sequence[int]) -> int | None:
    """The number of the first horizon within which a segment is deleted; None if there is none."""
    if segment.not_before_ms is None:
        return None
    for number, hours in enumerate(horizons):
        if segment.not_before_ms <= now_ms + hours * _HOUR_MS:
            return number
    return None


def _add_halves(
    lost: dict[tuple[int, int, str, str, str], Loss], halves: list[Count], going: list[Going]
) -> None:
    by_segment: dict[str, list[Count]] = defaultdict(list)
    for count in halves:
        by_segment[count.segment].append(count)
    for each in going:
        for count in by_segment.get(each.segment, ()):
            key = each.plan, each.horizon, "half", "", count.topic
            lost.setdefault(key, Loss()).add(
                count.messages, count.bytes, count.oldest_ms, each.goes_ms
            )


class _Sections:
    """The sections of a report, which name the plans and horizons that counts number.

    A horizon includes everything that is deleted within a shorter one.
    """

    def __init__(
        self,
        facts: ShardFacts,
        reserved_hours: Sequence[int],
        plans: Sequence[RetentionPlan],
        horizons: Sequence[int],
    ) -> None:
        self._facts = facts
        self._reserved = reserved_hours
        self._plans = plans
        self._horizons = horizons

    def risks(self, lost: dict[tuple[int, int, str, str, str], Loss]) -> list[Risk]:
        found: dict[tuple[int, int, str, str, str], Loss] = defaultdict(Loss)
        for (plan, first, *reader), loss in lost.items():
            for horizon in range(first, len(self._horizons)):
                kind, name, topic = reader
                found[plan, horizon, kind, name, topic].add(
                    loss.messages, loss.bytes, loss.oldest_ms, loss.goes_ms
                )
        return [self._risk(*key, loss) for key, loss in sorted(found.items())]

    def _risk(self, plan: int, horizon: int, kind: str, name: str, topic: str, loss: Loss) -> Risk:
        return Risk.model_validate(
            {
                "reserved_hours": self._reserved[plan],
                "is_in_force": plan == 0,
                "horizon_hours": self._horizons[horizon],
                "kind": kind,
                "name": name,
                "topic": topic,
                "messages": loss.messages,
                "bytes": loss.bytes,
                "oldest_ms": loss.oldest_ms,
                "goes_ms": loss.goes_ms,
            }
        )

    def topics(self, counts: list[Count]) -> Iterator[TopicExpiring]:
        for plan, horizon in self._all():
            within = [each for each in counts if each.plan == plan and each.horizon <= horizon]
            within.sort(key=lambda each: each.topic)
            for topic, found in groupby(within, key=lambda each: each.topic):
                parts = list(found)
                yield TopicExpiring(
                    reserved_hours=self._reserved[plan],
                    horizon_hours=self._horizons[horizon],
                    topic=topic,
                    segments=sum(each.segments for each in parts),
                    messages=sum(each.messages for each in parts),
                    bytes=sum(each.bytes for each in parts),
                )

    def expiring(self, counts: list[Count], risks: list[Risk]) -> Iterator[Expiring]:
        for plan, horizon in self._all():
            hours, reserved = self._horizons[horizon], self._reserved[plan]
            until = self._facts.now_ms + hours * _HOUR_MS
            gone = [
                each
                for each in self._plans[plan].segments
                if each.not_before_ms is not None and each.not_before_ms <= until
            ]
            within = [each for each in counts if each.plan == plan and each.horizon <= horizon]
            yield Expiring(
                reserved_hours=reserved,
                is_in_force=plan == 0,
                horizon_hours=hours,
                end_offset=gone[-1].offset + gone[-1].size if gone else self._facts.min_offset,
                segments=len(gone),
                messages=sum(each.messages for each in within),
                bytes=sum(each.bytes for each in within),
                lost=sum(
                    risk.messages
                    for risk in risks
                    if (risk.reserved_hours, risk.horizon_hours) == (reserved, hours)
                ),
            )

    def _all(self) -> Iterator[tuple[int, int]]:
        for plan in range(len(self._plans)):
            for horizon in range(len(self._horizons)):
                yield plan, horizon


def _stocks(ages: list[Count], places: Places) -> list[TopicStock]:
    found = []
    for topic, parts in groupby(sorted(ages, key=lambda each: each.topic), lambda each: each.topic):
        counts = list(parts)
        found.append(
            TopicStock(
                topic=topic,
                groups=places.groups_of(topic),
                messages=sum(each.messages for each in counts),
                bytes=sum(each.bytes for each in counts),
                oldest_ms=min(
                    (c.oldest_ms for c in counts if c.oldest_ms is not None), default=None
                ),
                newest_ms=max(
                    (c.newest_ms for c in counts if c.newest_ms is not None), default=None
                ),
            )
        )
    return found


def _ages(ages: list[Count]) -> Iterator[AgeClass]:
    edges = (0, *AGES_H, None)
    for each in sorted(ages, key=lambda each: (each.topic, each.age)):
        yield AgeClass(
            topic=each.topic,
            from_hours=edges[each.age] or 0,
            to_hours=edges[each.age + 1],
            messages=each.messages,
            bytes=each.bytes,
        )


def _segments(plan: RetentionPlan, counts: list[Count]) -> Iterator[SegmentStock]:
    found = {each.segment: each for each in counts}
    for segment in plan.segments:
        count = found.get(segment.name)
        yield SegmentStock(
            name=segment.name,
            start=segment.offset,
            end=segment.offset + segment.size,
            messages=count.messages if count is not None else 0,
            bytes=count.bytes if count is not None else 0,
            expires_ms=segment.expires_ms,
            not_before_ms=segment.not_before_ms,
            why=segment.why,
            held_by=segment.held_by,
        )
