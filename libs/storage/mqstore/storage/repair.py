"""Repair of a store that no service has open: of each finding of ``verify``, of lost data, of a log
that lies apart, of a full disk.

Used by ``mqstore store`` commands and by store-writer before an opening.
"""

from mqstore.storage.accept_loss import accept as accept_loss
from mqstore.storage.accept_loss import plan as plan_loss
from mqstore.storage.adoption import adopt as adopt_log
from mqstore.storage.adoption import plan as plan_adoption
from mqstore.storage.options import Fetch
from mqstore.storage.recovery.accepted_loss import AcceptedLoss
from mqstore.storage.room_at_rest import make_room
from mqstore.storage.store_repair import Change, Remedy, RepairOutcome, StoreRepair

__all__ = [
    "AcceptedLoss",
    "Change",
    "Fetch",
    "Remedy",
    "RepairOutcome",
    "StoreRepair",
    "accept_loss",
    "adopt_log",
    "make_room",
    "plan_adoption",
    "plan_loss",
]
