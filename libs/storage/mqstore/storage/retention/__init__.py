"""What may go, when and why: RocketMQ's CleanCommitLogService and CleanConsumeQueueService.

``plan`` is a value, made from a picture of the log, the disks and who needs what; ``removal``
unlinks; ``cleaner`` is the service that does it in rounds. ``disk`` measures the volumes, ``pins``,
``groups`` and ``archive`` say what is still needed.

Public: plans and what they are made from, as values. Used by store-writer and by the jobs that
forecast expiry and archive segments.
"""

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
from mqstore.storage.retention.rule import RetentionRule
from mqstore.storage.retention.unlinked import SHOWN_WITHIN_S
from mqstore.storage.retention.value import Value

__all__ = [
    "FORCED_DELETION",
    "GOING",
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
