"""Retention: plans and performs the deletion of segments, as RocketMQ's CleanCommitLogService and
CleanConsumeQueueService.

``plan`` makes a value from the state of the log, the disks and the holds; ``removal`` unlinks
files; ``cleaner`` is the service that removes segments in rounds. ``disk`` measures the volumes;
``pins``, ``groups`` and ``archive`` hold the segments that are still needed.

Public: plans and the values that they are made from. Used by store-writer and by the jobs that
forecast expiry and archive segments.
"""

from mqstore.storage.metadata.sealed_json import StrictValue as Value
from mqstore.storage.retention.archive import Archive
from mqstore.storage.retention.archive import read as read_archive
from mqstore.storage.retention.disk import Disks, DiskWatch
from mqstore.storage.retention.holds import Hold
from mqstore.storage.retention.journal import FORCED_DELETION
from mqstore.storage.retention.pins import NAME as PIN_NAME
from mqstore.storage.retention.pins import read as read_pins
from mqstore.storage.retention.plan import (
    GOING,
    PlannedSegment,
    RetentionPlan,
    SegmentFacts,
    Situation,
    Why,
)
from mqstore.storage.retention.plan import make as make_plan
from mqstore.storage.retention.rule import NO_DELETION, RetentionRule
from mqstore.storage.retention.unlinked_bytes import SHOWN_WITHIN_S

__all__ = [
    "FORCED_DELETION",
    "GOING",
    "NO_DELETION",
    "PIN_NAME",
    "SHOWN_WITHIN_S",
    "Archive",
    "DiskWatch",
    "Disks",
    "Hold",
    "PlannedSegment",
    "RetentionPlan",
    "RetentionRule",
    "SegmentFacts",
    "Situation",
    "Value",
    "Why",
    "make_plan",
    "read_archive",
    "read_pins",
]
