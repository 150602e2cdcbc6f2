"""The status of an open store: state, progress, recovery, scrub, quarantine, clock.

Used by store-writer for its views, events and metrics, and by commands that show progress.
"""

from mqstore.storage.lost_data import Loss
from mqstore.storage.metadata.clock_steps import ClockStep
from mqstore.storage.metadata.log_history import Epoch, LogHistory, common_end
from mqstore.storage.metadata.quarantine import QuarantineEntry
from mqstore.storage.metadata.quarantine_service import QuarantineService
from mqstore.storage.metadata.truncation import Truncation
from mqstore.storage.options import NEXT_EPOCH, Progress, RecoveredLog
from mqstore.storage.recovery.report import RecoveryReport, RepairReport
from mqstore.storage.replication.table_feed import (
    BEFORE_LOG,
    NOTHING,
    TableBatch,
    TableFeed,
    TableName,
    TableUpdate,
)
from mqstore.storage.retention.cleaner import Retention
from mqstore.storage.scrub.service import ScrubProgress
from mqstore.storage.store_status import StoreStatus

__all__ = [
    "BEFORE_LOG",
    "NEXT_EPOCH",
    "NOTHING",
    "ClockStep",
    "Epoch",
    "LogHistory",
    "Loss",
    "Progress",
    "QuarantineEntry",
    "QuarantineService",
    "RecoveredLog",
    "RecoveryReport",
    "RepairReport",
    "Retention",
    "ScrubProgress",
    "StoreStatus",
    "TableBatch",
    "TableFeed",
    "TableName",
    "TableUpdate",
    "Truncation",
    "common_end",
]
