"""Requests of a job that rebuilds a shard's index beside its writer."""

from __future__ import annotations

import struct
from collections.abc import AsyncIterable, Iterable, Iterator, Mapping
from typing import Any, Final, Literal
from urllib.parse import quote

from crc32c import crc32c

from mqstore.client.calls import Call, Target, given
from mqstore.client.models import Nothing
from mqstore.client.rebuild_models import (
    IndexPart,
    IndexPublished,
    IndexRebuild,
    IndexRebuilds,
)

_PATH: Final = "/v1/index-rebuilds"
_HEAD: Final = struct.Struct(">QII")
_COUNT: Final = struct.Struct(">Q")
_LAST: Final = 2**64 - 1
_ITEM_SIZE: Final = 24
FRAME_SIZE: Final = _ITEM_SIZE << 16
"""Bytes of items that go into one frame; the service takes 4 MiB."""
PLAN_WAIT_S: Final = 600.0
"""How long the files may take to be made."""
PUBLISH_WAIT_S: Final = 600.0
"""How long an answer may take; ask again for the same one."""


def begin_index_rebuild(
    owner: str,
    *,
    ttl_s: int = 60,
    store_format: Literal["4.9", "5.x"] | None = None,
    hash_slots: int | None = None,
    index_num: int | None = None,
    disk_ratio: int | None = None,
) -> Call[IndexRebuild]:
    """Take the lease, which lapses ``ttl_s`` seconds from now; from then on the index below ``to``
    is yours to make. Format and sizes are refused where they are not those of the store."""
    body = {"owner": owner, "ttlSeconds": ttl_s} | given(
        format=store_format, hashSlots=hash_slots, indexNum=index_num, diskRatio=disk_ratio
    )
    return Call(Target.WRITER, "POST", _PATH, IndexRebuild, json=body, wait_s=PLAN_WAIT_S)


def renew_index_rebuild(rebuild: str, *, ttl_s: int = 60) -> Call[IndexRebuild]:
    """A heartbeat: the lease then lapses ``ttl_s`` seconds from now."""
    body = {"ttlSeconds": ttl_s}
    return Call(Target.WRITER, "PUT", f"{_one(rebuild)}/lease", IndexRebuild, json=body)


def plan_index_rebuild(rebuild: str, plan: Mapping[str, Any]) -> Call[IndexRebuild]:
    """Which files, of which chunks of the log (``parts``, ``files``, ``starts``, ``firsts`` as in
    the API); they have their disk blocks when it returns."""
    path = f"{_one(rebuild)}/plan"
    return Call(Target.WRITER, "PUT", path, IndexRebuild, json=plan, wait_s=PLAN_WAIT_S)


def send_index_part(
    rebuild: str, part: int, frames: Iterable[bytes] | AsyncIterable[bytes]
) -> Call[IndexPart]:
    """All of a part, as ``part_frames`` makes it, in the order of the log; again begins anew."""
    return Call(
        Target.WRITER,
        "PUT",
        f"{_one(rebuild)}/parts/{part}",
        IndexPart,
        content=frames,
        headers={"content-type": "application/octet-stream"},
        wait_s=PLAN_WAIT_S,
    )


def publish_index_rebuild(rebuild: str) -> Call[IndexPublished]:
    """Let the new files be the index; a repeat waits for the first and has the same answer."""
    path = f"{_one(rebuild)}:publish"
    return Call(Target.WRITER, "POST", path, IndexPublished, wait_s=PUBLISH_WAIT_S)


def end_index_rebuild(rebuild: str) -> Call[Nothing]:
    """Give it up: what was staged is removed, and the index is as it was."""
    return Call(Target.WRITER, "DELETE", _one(rebuild), Nothing)


def index_rebuilds() -> Call[IndexRebuilds]:
    """The one that runs, and the last one that ended."""
    return Call(Target.WRITER, "GET", _PATH, IndexRebuilds)


def part_frames(chunks: Iterable[tuple[int, bytes]]) -> Iterator[bytes]:
    """A part as it is sent: of each chunk its physical offset and its items, 24 bytes each."""
    count = 0
    for start, items in chunks:
        count += len(items) // _ITEM_SIZE
        for at in range(0, len(items), FRAME_SIZE):
            yield _frame(start, items[at : at + FRAME_SIZE])
    yield _frame(_LAST, _COUNT.pack(count))


def _frame(start: int, content: bytes) -> bytes:
    return _HEAD.pack(start, len(content), crc32c(content)) + content


def _one(rebuild: str) -> str:
    return f"{_PATH}/{quote(rebuild, safe='')}"
