"""The report as a value; the job publishes it as JSON, and store-writer keeps its summary.

Times are milliseconds since 1970, offsets physical, sizes bytes.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final, Literal

from mqstore.storage.retention import RetentionRule, Value, Why


class Expiring(Value):
    """The messages that retention deletes within a horizon, with one fileReservedTime."""

    reserved_hours: int
    is_in_force: bool
    horizon_hours: int
    end_offset: int
    """Retention deletes the log below this offset."""
    segments: int
    messages: int
    bytes: int
    lost: int
    """Messages that readers have not consumed by now, counted per reader."""


class TopicExpiring(Value):
    """The messages of a topic that retention deletes; ``segments`` counts those that hold some."""

    reserved_hours: int
    horizon_hours: int
    topic: str
    segments: int
    messages: int
    bytes: int


class Risk(Value):
    """Messages that retention deletes before a reader consumes them, if it consumes none from now
    on."""

    reserved_hours: int
    is_in_force: bool
    horizon_hours: int
    kind: Literal["group", "delay", "half"]
    """Not consumed by a group, not delivered by a delay level, or half without a decision."""
    name: str
    """Name of the group or number of the level; empty for half messages."""
    topic: str
    """For half messages the topic that they are sent to."""
    messages: int
    bytes: int
    oldest_ms: int | None
    goes_ms: int | None
    """Earliest time when retention deletes the first of them."""


class TopicStock(Value):
    """All that the log has of a topic."""

    topic: str
    groups: int
    """Number of groups with a committed offset in the topic."""
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


DISK_HARMS: Final = {
    "diskSpaceCleanForciblyRatio": "retention then deletes the oldest messages, consumed or not",
    "diskSpaceWarningLevelRatio": "store-writer then refuses messages",
}
"""Levels of the disk that harm readers or producers, with the harm."""


class DiskForecast(Value):
    """The fullest volume, if messages keep coming as within the last day."""

    volume: str
    path: str
    total_bytes: int
    used_bytes: int
    bytes_per_hour: int
    """Growth of the log, queues and index before deletions."""
    used_by_hour: tuple[int, ...]
    """Used bytes now and after each further hour."""
    levels: tuple[Level, ...]

    @property
    def dangers(self) -> tuple[Level, ...]:
        """The harmful levels that the forecast reaches."""
        return tuple(
            level
            for level in self.levels
            if level.setting in DISK_HARMS and level.reached_in_hours is not None
        )


class ExpiryReport(Value):
    """The expiry report of one shard."""

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
    """Whether retention, by the rule in force, deletes messages that a reader has not consumed."""
    disk_fills: bool
    """Whether the forecast of the disk reaches a level that harms readers or producers."""
    expiring: tuple[Expiring, ...]
    risks: tuple[Risk, ...]
    topics: tuple[TopicStock, ...]
    topics_expiring: tuple[TopicExpiring, ...]
    ages: tuple[AgeClass, ...]
    segments: tuple[SegmentStock, ...]
    disk: DiskForecast | None
    """None where the disk cannot be measured."""

    @property
    def is_fine(self) -> bool:
        """Whether the report has nothing that an operator must act on."""
        return not (self.at_risk or self.disk_fills)

    @property
    def date(self) -> str:
        """The day it was made, in UTC."""
        return datetime.fromtimestamp(self.made_ms / 1000, UTC).date().isoformat()

    @property
    def base_name(self) -> str:
        """Base name of the report's files: shard and range of the log."""
        return f"{self.shard}_{self.min_offset:020d}-{self.max_offset:020d}"

    @property
    def risks_in_force(self) -> tuple[Risk, ...]:
        """By the rule in force within the longest horizon, the most urgent first."""
        longest = max(self.horizons_hours)
        found = [risk for risk in self.risks if risk.is_in_force and risk.horizon_hours == longest]
        return tuple(sorted(found, key=lambda risk: (risk.goes_ms or 0, -risk.messages)))
