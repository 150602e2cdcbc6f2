"""The state of a shard without its messages: settings, segments, offsets, pins, disks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from mqstore.storage import StoreConfig
from mqstore.storage.formats import SCHEDULE_TOPIC
from mqstore.storage.retention import Disks, Hold, RetentionPlan, SegmentFacts, Situation, make_plan
from mqstore.storage.settings import DelayLevels

TRANSACTION_GROUP: Final = "CID_RMQ_SYS_TRANS"
"""Its offsets say which half messages are decided, not which messages were consumed."""

Offsets = Mapping[int, int]
"""The next queue offset, by queue id."""


@dataclass(frozen=True, slots=True)
class Reader:
    """A consumer group of a topic, or the delivery of a delay level, with its next offsets."""

    kind: Literal["group", "delay"]
    name: str
    topic: str
    offsets: Offsets

    def place_in(self, queue_id: int) -> int | None:
        """The next offset in a queue; None if there is none: a group has consumed nothing in the
        queue, or the delay level does not read it."""
        return self.offsets.get(queue_id)

    def has_to_do_with(self, queue_id: int) -> bool:
        """Whether the reader reads this queue."""
        return self.kind == "group" or queue_id in self.offsets


@dataclass(frozen=True, slots=True)
class ShardFacts:
    """The state of a shard at one moment. Times in milliseconds since 1970, offsets physical."""

    name: str
    """In files and in the summary: store id and shard, else the directory's name."""
    now_ms: int
    config: StoreConfig
    """With the rule in force and the delay levels; sizes need not be the store's."""
    segments: Sequence[SegmentFacts]
    """Oldest first."""
    newest: str | None
    """Name of the newest file of the log, which is never deleted."""
    dispatched: int
    disks: Disks
    pins: Sequence[Hold]
    """Pins, and the hold on messages that are not archived."""
    honours_holds: bool
    """Whether pins, keepForGroups and undelivered messages keep segments; not for a broker."""
    consumed: Mapping[tuple[str, str], Offsets]
    """Committed offsets, by group and topic."""
    delivered: Offsets
    """The next offset to deliver, by delay level."""

    @property
    def min_offset(self) -> int:
        """The first physical offset of the log; 0 for an empty log."""
        return self.segments[0].start if self.segments else 0

    @property
    def max_offset(self) -> int:
        """The physical offset of the log's end; 0 for an empty log."""
        return self.segments[-1].end if self.segments else 0

    @property
    def levels(self) -> DelayLevels:
        """The delay levels of the store."""
        return DelayLevels(self.config.message_delay_level)

    def readers(self) -> Iterator[Reader]:
        """The consumer groups, without the coordinator's, and the delivery of each level."""
        for (group, topic), offsets in self.consumed.items():
            if group != TRANSACTION_GROUP:
                yield Reader("group", group, topic, offsets)
        for level in range(1, self.levels.max_level + 1):
            offset = self.delivered.get(level, 0)
            yield Reader("delay", str(level), SCHEDULE_TOPIC, {level - 1: offset})

    def planned(self, holds: Sequence[Hold], reserved_hours: int) -> RetentionPlan:
        """Retention's plan with the rule in force, but ``reserved_hours`` as fileReservedTime."""
        config = self.config.model_copy(update={"file_reserved_time": reserved_hours})
        return make_plan(
            Situation(
                now_ms=self.now_ms,
                config=config,
                segments=self.segments,
                dispatched=self.dispatched,
                disks=self.disks,
                holds=holds,
                newest=self.newest,
            )
        )
