"""Routes that serve log segments by byte range, with checksums, at a limited rate."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Annotated, Final

import msgspec
from fastapi import Header, Request, Response
from fastapi import Path as PathParameter
from fastapi.responses import StreamingResponse

from mqstore.query import replies
from mqstore.query.opened_store import OpenedStore
from mqstore.query.routes import json_reply
from mqstore.query.service import QueryService
from mqstore.service import problems
from mqstore.service.app import Api
from mqstore.service.endpoint import Endpoint
from mqstore.service.problems import Problem
from mqstore.service.ranges import parse_range
from mqstore.service.rate import Rate
from mqstore.storage.formats import crc32c
from mqstore.storage.reads import SegmentPart
from mqstore.wire import segments as operations
from mqstore.wire.operation import BINARY

RANGE_MAX: Final = 16 << 20
"""Maximum number of bytes in the reply to one Range; a longer range is cut, as HTTP allows."""
CHUNK: Final = 1 << 20
"""Bytes of one read while a whole segment is streamed."""


class SegmentRoutes:
    """Serves the list of segments, and their bytes."""

    def __init__(self, service: QueryService) -> None:
        self._service = service
        self._rate = Rate(service.settings.segment_transfer_rate)

    def add(self, api: Api) -> None:
        """Register the routes with ``api``."""
        self._auth = api.auth
        Endpoint(operations.LOG_FILES, self.segments).add(api)
        Endpoint(operations.LOG_BYTES, self.segment).add(api)

    async def segments(self) -> Response:
        """Segments of the log, oldest first, with the store epoch of this shard."""
        service = self._service

        def encode_segments() -> bytes:
            """Encode the list of segments. Runs in the pool."""
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

        return json_reply(await service.run(encode_segments))

    async def segment(
        self,
        request: Request,
        name: Annotated[
            str,
            PathParameter(
                max_length=40,
                description="Name of a segment in `GET /v1/segments`.",
                openapi_examples={"first": {"value": "00000000000000000000"}},
            ),
        ],
        range_: Annotated[
            str | None, Header(alias="range", description="One range of bytes.")
        ] = None,
        if_match: Annotated[
            str | None, Header(max_length=200, description="The `ETag` of an earlier reply.")
        ] = None,
    ) -> Response:
        """Bytes of one segment. `ETag` changes only with the store and its epoch, so that ranges
        read with `If-Match` belong together. `X-Mqstore-Block-Crc32c` has the CRC-32C that each
        whole 64 KiB block of the log in the range had when it was synced (`-` for a block without
        one). `Content-Digest` has the CRC-32C of the reply's body."""
        service = self._service
        store = service.store
        segments = store.reader.segments
        part = await service.run(lambda: segments.part(name))
        service.require_current(store)
        tag = f'"{store.id[:12]}-{part.epoch}-{part.name}"'
        if if_match is not None and if_match.strip() not in (tag, "*"):
            raise Problem(
                problems.EPOCH_CHANGED,
                f"the segment's ETag is {tag} now; read the segment from its beginning",
            )
        headers = {"etag": tag, "accept-ranges": "bytes"}
        requested = parse_range(range_, part.size)
        if requested is None:
            is_allowed = partial(
                self._auth.allows, request.scope["headers"], operations.LOG_BYTES.role
            )
            content = self._stream(store, part, is_allowed)
            return StreamingResponse(content, headers=headers, media_type=BINARY)
        start, stop = requested[0], min(requested[1], requested[0] + RANGE_MAX)
        await self._rate.take(stop - start)
        body, crcs = await service.run(
            lambda: (segments.read(part, start, stop), segments.checksums(part, start, stop))
        )
        service.require_current(store)
        digest = base64.b64encode(crc32c(body).to_bytes(4)).decode()
        headers |= {
            "content-range": f"bytes {start}-{stop - 1}/{part.size}",
            "content-digest": f"crc32c=:{digest}:",
            "x-mqstore-block-crc32c": ",".join("-" if c is None else f"{c:08x}" for c in crcs),
        }
        return Response(body, 206, headers=headers, media_type=BINARY)

    async def _stream(
        self, store: OpenedStore, part: SegmentPart, is_allowed: Callable[[], bool]
    ) -> AsyncIterator[bytes]:
        read = store.reader.segments.read
        for start in range(0, part.size, CHUNK):
            stop = min(start + CHUNK, part.size)
            await self._rate.take(stop - start)
            found = await self._service.run_admitted(partial(read, part, start, stop))
            self._service.require_current(store)
            if not is_allowed():
                return  # the reply is too short: the client sees that it is not whole
            yield found
