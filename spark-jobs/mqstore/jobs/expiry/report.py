"""The report as a value; its JSON is what the job publishes, and store-writer keeps its summary.

Times are milliseconds since 1970, offsets physical, sizes bytes.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal

from mqstore.storage.retention.plan import Why
from mqstore.storage.retention.rule import RetentionRule
from mqstore.storage.retention.value import Value


class Expiring(Value):
    """All that goes within a horizon, by the rule in force or another fileReservedTime."""

    reserved_hours: int
    is_in_force: bool
    horizon_hours: int
    end_offset: int
    """All of the log below goes."""
    segments: int
    messages: int
    bytes: int
    lost: int
    """Messages that somebody has not come to by now, each reader's counted."""


class TopicExpiring(Value):
    """What goes of a topic; ``segments`` are those with a message of it."""

    reserved_hours: int
    horizon_hours: int
    topic: str
    segments: int
    messages: int
    bytes: int


class Risk(Value):
    """Messages that somebody has not come to and that go: as of now, if nothing is consumed."""

    reserved_hours: int
    is_in_force: bool
    horizon_hours: int
    kind: Literal["group", "delay", "half"]
    """A group's, undelivered ones of a delay level, or half messages that nobody decided."""
    name: str
    """Of the group; of the level; empty."""
    topic: str
    """For half messages the one they belong to."""
    messages: int
    bytes: int
    oldest_ms: int | None
    goes_ms: int | None
    """When the first of them goes, at the earliest."""


class TopicStock(Value):
    """All that the log has of a topic."""

    topic: str
    groups: int
    """That have committed an offset in it."""
    messages: int
    bytes: int
    oldest_ms: int | None
    newest_ms: int | None


class AgeClass(Value):
    """Messages of a topic that are so old."""

    topic: str
    from_hours: int
    to_hours: int | None
    messages: int
    bytes: int


class SegmentStock(Value):
    """A file of the log, by the rule in force."""

    name: str
    start: int
    end: int
    messages: int
    bytes: int
    expires_ms: int
    not_before_ms: int | None
    why: Why
    held_by: tuple[str, ...]


class Level(Value):
    """A ratio of the disk at which something changes."""

    setting: str
    percent: int
    reached_in_hours: float | None
    """0: it is above already; None: not within the forecast."""


class DiskForecast(Value):
    """The fullest volume, if messages keep coming as within the last day."""

    volume: str
    path: str
    total_bytes: int
    used_bytes: int
    bytes_per_hour: int
    """That the log and what is derived from it grow by, before anything is deleted."""
    used_by_hour: tuple[int, ...]
    """From now on, an hour from one to the next."""
    levels: tuple[Level, ...]


class ExpiryReport(Value):
    made_ms: int
    shard: str
    where: str
    rule: RetentionRule
    horizons_hours: tuple[int, ...]
    min_offset: int
    max_offset: int
    messages: int
    bytes: int
    at_risk: bool
    """Whether by the rule in force anything goes that somebody has not come to."""
    expiring: tuple[Expiring, ...]
    risks: tuple[Risk, ...]
    topics: tuple[TopicStock, ...]
    topics_expiring: tuple[TopicExpiring, ...]
    ages: tuple[AgeClass, ...]
    segments: tuple[SegmentStock, ...]
    disk: DiskForecast | None
    """None where the disk cannot be measured."""

    @property
    def date(self) -> str:
        """The day it was made, in UTC."""
        return datetime.fromtimestamp(self.made_ms / 1000, UTC).date().isoformat()

    @property
    def base_name(self) -> str:
        """Of its files: shard and range of the log."""
        return f"{self.shard}_{self.min_offset:020d}-{self.max_offset:020d}"

    @property
    def risks_in_force(self) -> tuple[Risk, ...]:
        """By the rule in force within the longest horizon, the most urgent first."""
        longest = max(self.horizons_hours)
        found = [risk for risk in self.risks if risk.is_in_force and risk.horizon_hours == longest]
        return tuple(sorted(found, key=lambda risk: (risk.goes_ms or 0, -risk.messages)))
