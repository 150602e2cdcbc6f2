"""Repairs a whole store that no process has open: every finding of ``verify`` has a remedy.

``StoreRepair.plan`` does the work on a copy-on-write overlay, ``run`` on the files. Both repeat
three steps until ``verify`` finds nothing more: verify, change files that an opening cannot judge
(``file_remedies``, ``queue_remedies``), and open the store as its writer does, which recovers it
and makes what is derived again (``opened_remedies``).

A crash at any step leaves a store in which the next repair finds the remaining work. Bytes that are
changed or removed are in quarantine before.

``mqstore store rebuild`` is a repair that makes queues or index again whole (``DERIVED_PARTS``),
also where nothing is found.

Called from both commands, through the face module ``repair``.
"""

from mqstore.storage.store_repair.changes import Action, Change, ChangeList
from mqstore.storage.store_repair.remedies import REMEDIES, Remedy
from mqstore.storage.store_repair.repair import DERIVED_PARTS, RepairOutcome, StoreRepair

__all__ = [
    "DERIVED_PARTS",
    "REMEDIES",
    "Action",
    "Change",
    "ChangeList",
    "Remedy",
    "RepairOutcome",
    "StoreRepair",
]
