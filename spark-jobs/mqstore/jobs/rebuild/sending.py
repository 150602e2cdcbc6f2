"""The work of Spark's workers if a store-writer makes the files: they send it the items.

This is a module of its own because the client's modules are slow to load, and a rebuild of a store
at rest does not need them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from mqstore.client import ClientError, IndexPart, part_frames
from mqstore.jobs.command import refusal
from mqstore.jobs.rebuild.tasks import Items
from mqstore.jobs.shard_place import ShardPlace


def send_part(writer: ShardPlace, rebuild: str, chunks: Iterable[Items]) -> Iterator[IndexPart]:
    """Send one part's items, in the order of the log, to the store's writer. Raises JobError."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    try:
        with writer.client() as client:
            sent = client.send_index_part(rebuild, context.partitionId(), part_frames(chunks))
    except ClientError as error:
        raise refusal(error) or error from error  # Spark passes on only the type and text
    yield sent
