"""Plans the removal of segments: which, when and why, and what holds the others. Touches no file.

Segments are removed from the oldest on, by age (modification time plus fileReservedTime), up to the
first that stays; the last one always stays. Source: MappedFileQueue.deleteExpiredFileByTime and
CleanCommitLogService of 4.9.7 and 5.4.0; holds and the check for dispatch are ours.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from mqstore.storage.config import StoreConfig
from mqstore.storage.metadata.sealed_json import StrictValue
from mqstore.storage.retention import hours
from mqstore.storage.retention.disk import Disks, Volume
from mqstore.storage.retention.holds import Hold
from mqstore.storage.retention.rule import RetentionRule

_HOUR_MS: Final = 3_600_000


class Trigger(StrEnum):
    """Why files are removed at this moment."""

    HOUR = "hour"
    """The hour is one of deleteWhen."""
    DISK = "disk"
    """A volume is above diskMaxUsedSpaceRatio: expired files are removed at any hour."""
    FORCED = "forced"
    """A volume is above diskSpaceCleanForciblyRatio: files are removed at any age, unless the last
    deletion made no room because another process keeps deleted files open."""
    NO_SEGMENT = "no-segment"
    """The commit log's volume has no room for the next segment: files are removed as above both
    ratios."""
    MANUAL = "manual"
    """An operator requested the deletion."""


class Why(StrEnum):
    """Why one segment is removed or stays."""

    EXPIRED = "expired"
    FORCED = "forced"
    READER = "reader"
    """Its removal has begun, and a reader in this process still uses it."""
    HOUR = "hour"
    """Expired; waits for deleteWhen."""
    IN_TIME = "in-time"
    YOUNG = "young"
    """Not expired, on a volume that is too full: the segment was written to within
    cleanFileForciblyMinAge, so puts are rejected before it is deleted."""
    HELD = "held"
    NOT_DISPATCHED = "not-dispatched"
    NEWEST = "newest"
    BEHIND = "behind"
    """The segment could be removed, but an older one stays."""


GOING: Final = frozenset({Why.EXPIRED, Why.FORCED, Why.READER})


@dataclass(frozen=True, slots=True)
class SegmentFacts:
    """One segment: physical offsets, its last modification, whether its removal has begun."""

    name: str
    start: int
    end: int
    modified_ms: int
    is_leaving: bool = False


@dataclass(frozen=True, slots=True)
class Situation:
    """The input of a plan."""

    now_ms: int
    config: StoreConfig
    segments: Sequence[SegmentFacts]
    """Oldest first; the last one is the newest of the log unless ``newest`` names another."""
    dispatched: int
    """Physical offset below which everything is in its queues."""
    disks: Disks
    holds: Sequence[Hold] = ()
    manual: bool = False
    newest: str | None = None
    lacks_segment: bool = False
    """The next segment is not made yet and does not fit on the volume."""
    puts_refused: str | None = None
    """Why puts are rejected, or None."""


class PlannedSegment(StrictValue):
    """The plan for one segment. Offsets are physical, times milliseconds since the epoch."""

    name: str
    offset: int
    size: int
    modified_ms: int
    expires_ms: int
    """``modified_ms`` plus fileReservedTime."""
    goes: bool
    """Whether it is deleted now, deleteFileBatchMax segments a round."""
    not_before_ms: int | None
    """Earliest time of its deletion; None: unknown."""
    why: Why
    held_by: tuple[str, ...]
    """Pins and groups that need it, honoured or not."""


class RetentionPlan(StrictValue):
    """The segments that retention would remove at this moment, and those that would stay."""

    made_ms: int
    rule: RetentionRule
    """The settings of the plan."""
    deletes: bool = True
    """False: this process deletes nothing, whatever the store's settings are."""
    oldest_ms: int | None = None
    """When the oldest message was stored; None if it is not known."""
    triggers: tuple[Trigger, ...]
    """Reasons why files are deleted now."""
    next_hour_ms: int
    """The next time of deleteWhen, or now."""
    puts_refused: bool
    """Whether the next put would be refused."""
    puts_refused_why: str | None = None
    """Reason why puts are refused."""
    holds_honoured: bool
    """False above keepDiskCeilingRatio: pins and groups keep nothing."""
    volumes: tuple[Volume, ...]
    holds: tuple[Hold, ...]
    segments: tuple[PlannedSegment, ...]
    """The segments, oldest first."""
    bytes_to_go: int
    """Bytes of the segments that are deleted now."""

    @property
    def fullest(self) -> Volume:
        """The volume that is fullest once the deleted bytes are free; there is one when segments
        are removed before their time."""
        return max(self.volumes, key=lambda each: each.expected_bytes / max(1, each.total_bytes))

    @property
    def next(self) -> PlannedSegment | None:
        """The segment that is removed first, or None."""
        first = self.segments[0] if self.segments else None
        return first if first is not None and first.goes else None


def make(situation: Situation) -> RetentionPlan:
    """Make the plan; a pure function of the situation."""
    rule = RetentionRule.of(situation.config)
    judge = _Judge(situation, deletes=rule.deletes)
    segments = tuple(judge.judge_all())
    return RetentionPlan(
        made_ms=situation.now_ms,
        rule=rule,
        deletes=rule.deletes,
        triggers=judge.triggers,
        next_hour_ms=hours.next_time(situation.now_ms, judge.hours),
        puts_refused=situation.puts_refused is not None,
        puts_refused_why=situation.puts_refused,
        holds_honoured=judge.holds_honoured,
        volumes=tuple(situation.disks.volumes),
        holds=tuple(situation.holds),
        segments=segments,
        bytes_to_go=sum(segment.size for segment in segments if segment.goes),
    )


class _Judge:
    def __init__(self, situation: Situation, *, deletes: bool) -> None:
        self._situation = situation
        self._deletes = deletes
        config, disks = situation.config, situation.disks
        self.hours = hours.parse(config.delete_when)
        self.triggers = tuple(_triggers(situation, self.hours))
        self.holds_honoured = not disks.is_above(config.keep_disk_ceiling_ratio)
        self._any_hour = bool({Trigger.DISK, Trigger.FORCED, Trigger.MANUAL} & set(self.triggers))
        self._reserved_ms = config.file_reserved_time * _HOUR_MS
        self._min_age_ms = config.clean_file_forcibly_min_age
        last = situation.segments[-1].name if situation.segments else None
        self._newest = situation.newest or last

    def judge_all(self) -> Iterator[PlannedSegment]:
        """Plan every segment; one that stays keeps all that come after it."""
        passed, earliest = True, self._situation.now_ms
        known: int | None = earliest
        for segment in self._situation.segments:
            holds = [h for h in self._situation.holds if h.covers(segment.start, segment.end)]
            why = self._why(segment, holds)
            own = self._not_before(segment, why, holds)
            known = None if known is None or own is None else max(known, own)
            if why in GOING and not passed:
                why = Why.BEHIND
            passed = passed and why in GOING
            yield PlannedSegment(
                name=segment.name,
                offset=segment.start,
                size=segment.end - segment.start,
                modified_ms=segment.modified_ms,
                expires_ms=segment.modified_ms + self._reserved_ms,
                goes=passed,
                not_before_ms=known,
                why=why,
                held_by=tuple(map(str, holds)),
            )

    def _why(self, segment: SegmentFacts, holds: Sequence[Hold]) -> Why:
        if segment.name == self._newest:
            return Why.NEWEST
        if segment.is_leaving:
            return Why.READER
        if segment.end > self._situation.dispatched:
            return Why.NOT_DISPATCHED
        if holds and self.holds_honoured:
            return Why.HELD
        if self._situation.now_ms < segment.modified_ms + self._reserved_ms:
            return self._why_in_time(segment)
        return Why.EXPIRED if self.triggers else Why.HOUR

    def _why_in_time(self, segment: SegmentFacts) -> Why:
        if Trigger.FORCED not in self.triggers:
            return Why.IN_TIME
        is_young = self._situation.now_ms < segment.modified_ms + self._min_age_ms
        return Why.YOUNG if is_young else Why.FORCED

    def _not_before(self, segment: SegmentFacts, why: Why, holds: Sequence[Hold]) -> int | None:
        now_ms = self._situation.now_ms
        if why in GOING:
            return now_ms
        if why in (Why.NEWEST, Why.NOT_DISPATCHED) or not self._deletes:
            return None
        age_ms = self._min_age_ms if why is Why.YOUNG else self._reserved_ms
        moment = max(now_ms, segment.modified_ms + age_ms)
        if why is Why.HELD:
            for hold in holds:
                if hold.until_ms is None:
                    return None
                moment = max(moment, hold.until_ms)
        return moment if self._any_hour else hours.next_time(moment, self.hours)


def _triggers(situation: Situation, delete_hours: frozenset[int]) -> Iterator[Trigger]:
    config, disks = situation.config, situation.disks
    lacks = situation.lacks_segment
    forced = lacks or disks.is_above(config.disk_space_clean_forcibly_ratio)
    if hours.is_time(situation.now_ms, delete_hours):
        yield Trigger.HOUR
    if forced or disks.is_above(config.disk_max_used_space_ratio):
        yield Trigger.DISK
    if forced and config.clean_file_forcibly_enable and not disks.doubts:
        yield Trigger.FORCED
    if lacks:
        yield Trigger.NO_SEGMENT
    if situation.manual:
        yield Trigger.MANUAL
