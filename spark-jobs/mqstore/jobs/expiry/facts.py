"""What a shard says of itself, without a look at its messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from mqstore.storage.config import StoreConfig
from mqstore.storage.delay.delay_levels import DelayLevels
from mqstore.storage.layout import SCHEDULE_TOPIC
from mqstore.storage.retention import plan
from mqstore.storage.retention.disk import Disks
from mqstore.storage.retention.holds import Hold
from mqstore.storage.retention.plan import RetentionPlan, SegmentFacts, Situation

TRANSACTION_GROUP: Final = "CID_RMQ_SYS_TRANS"
"""Its offsets say up to where half messages are decided, not what anybody consumed."""

Offsets = Mapping[int, int]
"""The next queue offset, by queue id."""


@dataclass(frozen=True, slots=True)
class Reader:
    """Somebody who still has to come to messages: a group of a topic, or a level's delivery."""

    kind: Literal["group", "delay"]
    name: str
    topic: str
    offsets: Offsets

    def place_in(self, queue_id: int) -> int | None:
        """The next offset; None where it has none: a group has consumed nothing there, and
        delivery has nothing to do with it."""
        return self.offsets.get(queue_id)

    def has_to_do_with(self, queue_id: int) -> bool:
        return self.kind == "group" or queue_id in self.offsets


@dataclass(frozen=True, slots=True)
class ShardFacts:
    """As of one moment. Times in milliseconds since 1970, offsets physical."""

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
    """And what retention keeps until it is archived."""
    honours_holds: bool
    """Whether pins, keepForGroups and undelivered messages keep segments; not for a broker."""
    consumed: Mapping[tuple[str, str], Offsets]
    """Of each group in each of its topics."""
    delivered: Offsets
    """The next offset to deliver, by delay level."""

    @property
    def min_offset(self) -> int:
        return self.segments[0].start if self.segments else 0

    @property
    def max_offset(self) -> int:
        return self.segments[-1].end if self.segments else 0

    @property
    def levels(self) -> DelayLevels:
        return DelayLevels(self.config.message_delay_level)

    def readers(self) -> Iterator[Reader]:
        for (group, topic), offsets in self.consumed.items():
            if group != TRANSACTION_GROUP:
                yield Reader("group", group, topic, offsets)
        for level in range(1, self.levels.max_level + 1):
            offset = self.delivered.get(level, 0)
            yield Reader("delay", str(level), SCHEDULE_TOPIC, {level - 1: offset})

    def planned(self, holds: Sequence[Hold], reserved_hours: int) -> RetentionPlan:
        """What retention does by the rule in force, or with another fileReservedTime."""
        config = self.config.model_copy(update={"file_reserved_time": reserved_hours})
        return plan.make(
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
