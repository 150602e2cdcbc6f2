"""The index of a store that is written, made anew by a job: its lease, its plan, its parts.

Public: the leases and what they report. Used by store-writer.
"""

from mqstore.storage.rebuild.index_rebuilds import LEASE_MAX_S, IndexRebuilds
from mqstore.storage.rebuild.part_upload import PartUpload
from mqstore.storage.rebuild.values import PartSums, Published, RebuildEnded, RebuildView

__all__ = [
    "LEASE_MAX_S",
    "IndexRebuilds",
    "PartSums",
    "PartUpload",
    "Published",
    "RebuildEnded",
    "RebuildView",
]
