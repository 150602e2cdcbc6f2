"""Facts and reports for the tests of the expiry report, without a store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mqstore.jobs.expiry.facts import ShardFacts
from mqstore.jobs.expiry.report import (
    AgeClass,
    DiskForecast,
    Expiring,
    ExpiryReport,
    Level,
    Risk,
    SegmentStock,
    TopicExpiring,
    TopicStock,
)
from mqstore.storage.config import StoreConfig
from mqstore.storage.retention.disk import Disks, Volume
from mqstore.storage.retention.plan import SegmentFacts, Why
from mqstore.storage.retention.rule import RetentionRule

HOUR_MS = 3_600_000
NOW_MS = 1_800_100_800_000
SEGMENT = 1000
ANY_HOUR = ";".join(map(str, range(24)))


def facts(ages_h: Sequence[int] = (), **changes: object) -> ShardFacts:
    """Facts of a log whose segments were written so many hours ago, deleted at any hour."""
    segments = [
        SegmentFacts(f"{n:020d}", n * SEGMENT, (n + 1) * SEGMENT, NOW_MS - age * HOUR_MS)
        for n, age in enumerate(ages_h)
    ]
    made = ShardFacts(
        name="0a1b2c3d-0",
        now_ms=NOW_MS,
        config=StoreConfig(delete_when=ANY_HOUR),
        segments=segments,
        newest=segments[-1].name if segments else None,
        dispatched=len(segments) * SEGMENT,
        disks=disks(50),
        pins=[],
        honours_holds=True,
        consumed={},
        delivered={},
    )
    return replace(made, **changes)  # type: ignore[arg-type]  # field names are the tests' own


def disks(percent: int) -> Disks:
    volume = Volume(
        name="commitlog",
        path="/log",
        total_bytes=100 * SEGMENT,
        used_bytes=percent * SEGMENT,
        free_bytes=(100 - percent) * SEGMENT,
        used_percent=percent,
    )
    return Disks([volume])


def risk(name: str = "billing", topic: str = "orders", **changes: object) -> Risk:
    made = Risk(
        reserved_hours=72,
        is_in_force=True,
        horizon_hours=24,
        kind="group",
        name=name,
        topic=topic,
        messages=7,
        bytes=700,
        oldest_ms=NOW_MS - 70 * HOUR_MS,
        goes_ms=NOW_MS + 2 * HOUR_MS,
    )
    return made.model_copy(update=changes)


def report(risks: Sequence[Risk] = (), topics: Sequence[str] = ("orders",)) -> ExpiryReport:
    return ExpiryReport(
        made_ms=NOW_MS,
        shard="0a1b2c3d-0",
        where="/data/store",
        rule=RetentionRule.of(StoreConfig()),
        horizons_hours=(24,),
        min_offset=0,
        max_offset=2000,
        messages=20,
        bytes=2000,
        at_risk=bool(risks),
        disk_fills=False,
        expiring=(expiring(risks),),
        risks=tuple(risks),
        topics=tuple(topic_stock(topic) for topic in topics),
        topics_expiring=tuple(topic_expiring(topic) for topic in topics),
        ages=tuple(
            AgeClass(topic=topic, from_hours=48, to_hours=72, messages=20, bytes=2000)
            for topic in topics
        ),
        segments=tuple(segment_stock(number) for number in range(2)),
        disk=DiskForecast(
            volume="commitlog",
            path="/log",
            total_bytes=100,
            used_bytes=70,
            bytes_per_hour=1,
            used_by_hour=tuple(range(70, 90)),
            levels=(Level(setting="diskMaxUsedSpaceRatio", percent=75, reached_in_hours=5.0),),
        ),
    )


def expiring(risks: Sequence[Risk]) -> Expiring:
    return Expiring(
        reserved_hours=72,
        is_in_force=True,
        horizon_hours=24,
        end_offset=1000,
        segments=1,
        messages=10,
        bytes=1000,
        lost=sum(each.messages for each in risks),
    )


def topic_stock(topic: str) -> TopicStock:
    return TopicStock(
        topic=topic,
        groups=1,
        messages=20,
        bytes=2000,
        oldest_ms=NOW_MS - 70 * HOUR_MS,
        newest_ms=NOW_MS,
    )


def topic_expiring(topic: str) -> TopicExpiring:
    return TopicExpiring(
        reserved_hours=72,
        horizon_hours=24,
        topic=topic,
        segments=1,
        messages=10,
        bytes=1000,
    )


def segment_stock(number: int) -> SegmentStock:
    return SegmentStock(
        name=f"{number:020d}",
        start=number * SEGMENT,
        end=(number + 1) * SEGMENT,
        messages=10,
        bytes=1000,
        expires_ms=NOW_MS,
        not_before_ms=None if number else NOW_MS + HOUR_MS,
        why=Why.NEWEST if number else Why.HOUR,
        held_by=(),
    )
