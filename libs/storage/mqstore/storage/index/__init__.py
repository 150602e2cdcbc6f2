"""IndexFile: message keys, and how the files are built, published and kept.

Public: building index files in a job, from a scan of the log to staged files. Used by the index
rebuild and by store-writer, which checks the job's results.
"""

from mqstore.storage._kernel import item_at
from mqstore.storage.index.build import (
    ITEM_SIZE,
    OFFSET_MAX,
    BuildPlan,
    PartBuilder,
    PartCounts,
    finish_files,
    make_files,
    refuse_full_disk,
    staged_name,
)
from mqstore.storage.index.plan import IndexPlan, Item, Layout, PlannedFile
from mqstore.storage.index.publication import StagedFile, index_names
from mqstore.storage.index.publication import discard as discard_staged
from mqstore.storage.index.scan import Chunk, IndexScan

__all__ = [
    "ITEM_SIZE",
    "OFFSET_MAX",
    "BuildPlan",
    "Chunk",
    "IndexPlan",
    "IndexScan",
    "Item",
    "Layout",
    "PartBuilder",
    "PartCounts",
    "PlannedFile",
    "StagedFile",
    "discard_staged",
    "finish_files",
    "index_names",
    "item_at",
    "make_files",
    "refuse_full_disk",
    "staged_name",
]
