"""Repair of a store that no service has open: accept a loss, give another root to a log that lies
apart, make room on a full disk; and the steps of a repair, for display.

Used by ``mqstore store`` commands and by store-writer before an opening.
"""

from mqstore.storage.accept_loss import accept as accept_loss
from mqstore.storage.accept_loss import plan as plan_loss
from mqstore.storage.adoption import adopt as adopt_log
from mqstore.storage.adoption import plan as plan_adoption
from mqstore.storage.recovery.accepted_loss import AcceptedLoss
from mqstore.storage.recovery.report import PlaceTombstone, RestoreBytes
from mqstore.storage.room_at_rest import make_room

__all__ = [
    "AcceptedLoss",
    "PlaceTombstone",
    "RestoreBytes",
    "accept_loss",
    "adopt_log",
    "make_room",
    "plan_adoption",
    "plan_loss",
]
