"""Requests of a job that rebuilds the index of a shard while its writer runs."""

from __future__ import annotations

import struct
from collections.abc import AsyncIterable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal

from mqstore.client import contract
from mqstore.client.checksums import crc32c
from mqstore.client.methods import sends
from mqstore.client.requests import Call, call, document
from mqstore.wire.operation import Nothing

if TYPE_CHECKING:
    from mqstore.wire.rebuilds import IndexPart, IndexRebuild, IndexRebuilds, PublishedIndex

_HEAD: Final = struct.Struct(">QII")
_COUNT: Final = struct.Struct(">Q")
_LAST: Final = 2**64 - 1
_ITEM_SIZE: Final = 24
FRAME_SIZE: Final = _ITEM_SIZE << 16
"""Bytes of items in one frame; the service accepts 4 MiB."""
PLAN_WAIT_S: Final = 600.0
"""Longest time in which the service creates the files."""
PUBLISH_WAIT_S: Final = 600.0
"""Longest time for the reply; a retry has the same reply."""


def begin_index_rebuild(
    owner: str,
    *,
    ttl_s: int = 60,
    store_format: Literal["4.9", "5.x"] | None = None,
    hash_slots: int | None = None,
    index_num: int | None = None,
    disk_ratio: int | None = None,
) -> Call[IndexRebuild]:
    """Take the lease to build the index below ``to`` (in the reply), for ``ttl_s`` seconds.

    The service rejects a format or sizes that differ from the store's.
    """
    body = document(
        contract.rebuilds.BEGIN_REBUILD,
        owner=owner,
        ttl_seconds=ttl_s,
        format=store_format,
        hash_slots=hash_slots,
        index_num=index_num,
        disk_ratio=disk_ratio,
    )
    return call(contract.rebuilds.BEGIN_REBUILD, json=body, wait_s=PLAN_WAIT_S)


def renew_index_rebuild(rebuild: str, *, ttl_s: int = 60) -> Call[IndexRebuild]:
    """Renew the lease: it then expires ``ttl_s`` seconds from now."""
    body = document(contract.rebuilds.RENEW_REBUILD, ttl_seconds=ttl_s)
    return call(contract.rebuilds.RENEW_REBUILD, at={"rebuild": rebuild}, json=body)


def plan_index_rebuild(rebuild: str, plan: Mapping[str, Any]) -> Call[IndexRebuild]:
    """Create the staged files of the index and allocate their disk blocks.

    ``plan`` has ``parts``, ``files``, ``starts`` and ``firsts``, as in the REST API.
    """
    return call(
        contract.rebuilds.PLAN_REBUILD, at={"rebuild": rebuild}, json=plan, wait_s=PLAN_WAIT_S
    )


def send_index_part(
    rebuild: str, part: int, frames: Iterable[bytes] | AsyncIterable[bytes]
) -> Call[IndexPart]:
    """Send a whole part, as ``part_frames`` encodes it. A retry replaces the part."""
    return call(
        contract.rebuilds.SEND_PART,
        at={"rebuild": rebuild, "part": part},
        content=frames,
        headers={"content-type": "application/octet-stream"},
        wait_s=PLAN_WAIT_S,
    )


def publish_index_rebuild(rebuild: str) -> Call[PublishedIndex]:
    """Replace the index by the staged files. A retry waits for the first and has its reply."""
    return call(contract.rebuilds.PUBLISH_REBUILD, at={"rebuild": rebuild}, wait_s=PUBLISH_WAIT_S)


def end_index_rebuild(rebuild: str) -> Call[Nothing]:
    """Abort a rebuild: the staged files are removed, and the index is unchanged."""
    return call(contract.rebuilds.GIVE_UP_REBUILD, at={"rebuild": rebuild})


def index_rebuilds() -> Call[IndexRebuilds]:
    """Return the rebuild in progress and the last one that ended."""
    return call(contract.rebuilds.REBUILDS)


def part_frames(chunks: Iterable[tuple[int, bytes]]) -> Iterator[bytes]:
    """Encode a part: yield the frames of chunks, each a physical offset and items of 24 bytes."""
    count = 0
    for start, items in chunks:
        count += len(items) // _ITEM_SIZE
        for at in range(0, len(items), FRAME_SIZE):
            yield _frame(start, items[at : at + FRAME_SIZE])
    yield _frame(_LAST, _COUNT.pack(count))


def _frame(start: int, content: bytes) -> bytes:
    return _HEAD.pack(start, len(content), crc32c(content)) + content


class RebuildCalls:
    """Methods of both clients."""

    begin_index_rebuild = sends(begin_index_rebuild)
    renew_index_rebuild = sends(renew_index_rebuild)
    plan_index_rebuild = sends(plan_index_rebuild)
    send_index_part = sends(send_index_part)
    publish_index_rebuild = sends(publish_index_rebuild)
    end_index_rebuild = sends(end_index_rebuild)
    index_rebuilds = sends(index_rebuilds)
