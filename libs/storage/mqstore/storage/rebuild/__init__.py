"""Index rebuilds by a job while the store is written: lease, plan, parts, publication.

Public: the leases and their reports. Used by store-writer.
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
