"""Segments by byte range, with checksums, for backups and jobs; never faster than is allowed."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from functools import partial
from typing import Annotated, Final

import msgspec
from fastapi import Header, Response
from fastapi import Path as PathParameter
from fastapi.responses import StreamingResponse

from mqstore.query import replies
from mqstore.query.opened_store import OpenedStore
from mqstore.query.routes import json_answer
from mqstore.query.service import QueryService
from mqstore.service import problems
from mqstore.service.app import Api
from mqstore.service.endpoint import Endpoint
from mqstore.service.problems import Problem
from mqstore.service.ranges import parse_range
from mqstore.storage.formats import crc32c
from mqstore.storage.reads import SegmentPart
from mqstore.wire.operation import BINARY
from mqstore.wire.operations import segments as operations

RANGE_MAX: Final = 16 << 20
"""Bytes answered to one Range; what was asked for beyond is left out, as HTTP allows."""
CHUNK: Final = 1 << 20
"""Bytes read at a time of a whole segment."""


class Rate:
    """Bytes a second over all who take them, on one event loop. 0: no bound."""

    def __init__(self, per_second: int) -> None:
        self._per_second = per_second
        self._free_at = 0.0

    async def take(self, size: int) -> None:
        """Wait until what was taken before is paid for."""
        if self._per_second == 0:
            return
        now = asyncio.get_running_loop().time()
        wait = self._free_at - now
        self._free_at = max(now, self._free_at) + size / self._per_second
        if wait > 0:
            await asyncio.sleep(wait)


class SegmentRoutes:
    def __init__(self, service: QueryService) -> None:
        self._service = service
        self._rate = Rate(service.settings.segment_transfer_rate)

    def add(self, api: Api) -> None:
        Endpoint(operations.LOG_FILES, self.segments).add(api)
        Endpoint(operations.LOG_BYTES, self.segment).add(api)

    async def segments(self) -> Response:
        service = self._service

        def look() -> bytes:
            reader = service.reader
            found = [
                replies.LogFile(
                    name=each.name, offset=each.offset, size=each.size, full=each.is_full
                )
                for each in reader.segments.all()
            ]
            epoch, shard = reader.state.epoch, service.settings.shard
            return msgspec.json.encode(
                replies.LogFiles(epoch=epoch, shard=shard, segments=tuple(found))
            )

        return json_answer(await service.run(look))

    async def segment(
        self,
        name: Annotated[
            str,
            PathParameter(
                max_length=40,
                description="As `GET /v1/segments` lists it.",
                openapi_examples={"first": {"value": "00000000000000000000"}},
            ),
        ],
        range_: Annotated[
            str | None, Header(alias="range", description="One range of bytes.")
        ] = None,
        if_match: Annotated[
            str | None, Header(max_length=200, description="The `ETag` of an answer before.")
        ] = None,
    ) -> Response:
        """`ETag` changes with the store and its epoch only: with `If-Match`, ranges of one segment
        fit together. `X-Mqstore-Block-Crc32c` has the CRC-32C of each whole 64 KiB block of the log
        in the range, as it was when it was synced (`-` for one without), `Content-Digest` that of
        the answer."""
        service = self._service
        store = service.store
        segments = store.reader.segments
        part = await service.run(lambda: segments.part(name))
        service.require(store)
        tag = f'"{store.id[:12]}-{part.epoch}-{part.name}"'
        if if_match is not None and if_match.strip() not in (tag, "*"):
            raise Problem(
                problems.EPOCH_CHANGED,
                f"the segment's tag is {tag} now; read it from the beginning",
            )
        headers = {"etag": tag, "accept-ranges": "bytes"}
        asked = parse_range(range_, part.size)
        if asked is None:
            return StreamingResponse(self._all(store, part), headers=headers, media_type=BINARY)
        start, stop = asked[0], min(asked[1], asked[0] + RANGE_MAX)
        await self._rate.take(stop - start)
        body, crcs = await service.run(
            lambda: (segments.read(part, start, stop), segments.checksums(part, start, stop))
        )
        service.require(store)
        digest = base64.b64encode(crc32c(body).to_bytes(4)).decode()
        headers |= {
            "content-range": f"bytes {start}-{stop - 1}/{part.size}",
            "content-digest": f"crc32c=:{digest}:",
            "x-mqstore-block-crc32c": ",".join("-" if c is None else f"{c:08x}" for c in crcs),
        }
        return Response(body, 206, headers=headers, media_type=BINARY)

    async def _all(self, store: OpenedStore, part: SegmentPart) -> AsyncIterator[bytes]:
        read = store.reader.segments.read
        for start in range(0, part.size, CHUNK):
            stop = min(start + CHUNK, part.size)
            await self._rate.take(stop - start)
            found = await self._service.run_in_turn(partial(read, part, start, stop))
            self._service.require(store)
            yield found
