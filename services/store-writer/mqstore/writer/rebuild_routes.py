"""Routes of an index rebuild: a lease, a plan, parts as streams, publication."""

from __future__ import annotations

import asyncio
from typing import Annotated, Final

import msgspec
from fastapi import Path as PathParameter

from mqstore.service import bodies, problems
from mqstore.service.app import Api
from mqstore.service.endpoint import Endpoint, Hot
from mqstore.service.http import HotRequest, Reply, refuse_unknown
from mqstore.service.problems import Problem
from mqstore.service.structs import struct_of
from mqstore.storage.errors import IndexRebuildInvalid
from mqstore.storage.formats import StoreFormat
from mqstore.storage.index import BuildPlan, Layout, PlannedFile
from mqstore.storage.rebuild import IndexRebuilds, PartSums, PartUpload, Published, RebuildView
from mqstore.wire import rebuilds as operations
from mqstore.wire import rebuilds as wire
from mqstore.wire.examples import rebuilds as examples
from mqstore.wire.operation import BINARY
from mqstore.wire.rebuilds import LeaseSpec, RebuildPlan, RebuildSpec
from mqstore.writer.part_frames import FrameReader
from mqstore.writer.service import WriterService

PLAN_SIZE_MAX: Final = 64 << 20
"""Maximum bytes of a plan, enough for two million chunks."""
UPLOADS_MAX: Final = 2
"""Maximum number of parts received at one time."""
STREAM_TYPE: Final = BINARY.encode()

RebuildId = Annotated[
    str,
    PathParameter(
        max_length=100, openapi_examples={"a rebuild": {"value": examples.RUNNING["id"]}}
    ),
]


class IndexRebuildRoutes:
    """Serves the index rebuild's job (role system); the role consume may read its state."""

    def __init__(self, service: WriterService) -> None:
        self._service = service
        self._plans = msgspec.json.Decoder(struct_of(RebuildPlan))
        self._uploads = 0

    def add(self, api: Api) -> None:
        """Register the routes with ``api``."""
        Endpoint(operations.REBUILDS, self.rebuilds).add(api)
        Endpoint(operations.BEGIN_REBUILD, self.begin).add(api)
        Endpoint(operations.RENEW_REBUILD, self.renew).add(api)
        Endpoint(operations.PUBLISH_REBUILD, self.publish).add(api)
        Endpoint(operations.GIVE_UP_REBUILD, self.give_up).add(api)
        Endpoint(operations.PLAN_REBUILD, self._plan, Hot(streams=True)).add(api)
        Endpoint(operations.SEND_PART, self._part, Hot(streams=True)).add(api)

    @property
    def _rebuilds(self) -> IndexRebuilds:
        return self._service.store.rebuilds

    async def rebuilds(self) -> wire.IndexRebuilds:
        """The rebuild that runs, and the last one that ended."""
        rebuilds = self._rebuilds
        return wire.IndexRebuilds.model_validate(
            {"running": rebuilds.running, "last": rebuilds.last}
        )

    async def begin(self, spec: RebuildSpec) -> RebuildView:
        """Begins a rebuild. The job indexes the log below `to`, which is on disk and kept from
        deletion up to keepDiskCeilingRatio; the writer indexes the rest into a file of its own. One
        rebuild runs at a time; it is discarded when its lease lapses."""
        return await asyncio.to_thread(
            self._rebuilds.begin,
            spec.owner,
            lease_s=spec.ttl_seconds,
            store_format=None if spec.format is None else StoreFormat(spec.format),
            hash_slots=spec.hash_slots,
            index_num=spec.index_num,
            disk_ratio=spec.disk_ratio,
        )

    async def renew(self, rebuild: RebuildId, spec: LeaseSpec) -> RebuildView:
        """Renews the lease, which then ends `ttlSeconds` from now."""
        return await asyncio.to_thread(self._rebuilds.heartbeat, rebuild, spec.ttl_seconds)

    async def publish(self, rebuild: RebuildId) -> Published:
        """Publishes the rebuild once every part was received: the files are synced, read back, and
        replace all index files, while messages are stored and found. A second request waits for the
        first and gets the same reply."""
        return await asyncio.to_thread(self._rebuilds.publish, rebuild)

    async def give_up(self, rebuild: RebuildId) -> None:
        """Gives up the rebuild: its files are removed and the index stays unchanged."""
        await asyncio.to_thread(self._rebuilds.give_up, rebuild)

    async def _plan(self, request: HotRequest) -> Reply:
        self._service.require_writable()
        refuse_unknown(request.query(), ())
        if not bodies.is_json(request.media_type.decode("latin-1")):
            raise bodies.not_json_problem()
        body = bytearray()
        async for piece in request.pieces():
            body += piece
            if len(body) > PLAN_SIZE_MAX:
                raise IndexRebuildInvalid(
                    f"a plan of more than {PLAN_SIZE_MAX} bytes is refused; make larger chunks"
                )
        view = await asyncio.to_thread(self._take_plan, request.params["rebuild"], bytes(body))
        return Reply(view.model_dump_json(by_alias=True).encode())

    def _take_plan(self, rebuild: str, body: bytes) -> RebuildView:
        rebuilds, plan = self._rebuilds, bodies.decode(self._plans, body)
        return rebuilds.plan(rebuild, build_plan(plan, rebuilds.layout), plan.parts)

    async def _part(self, request: HotRequest) -> Reply:
        self._service.require_writable()
        refuse_unknown(request.query(), ())
        if request.media_type != STREAM_TYPE:
            raise Problem(
                problems.UNSUPPORTED_MEDIA_TYPE, f"send content-type {STREAM_TYPE.decode()}"
            )
        part = request.params["part"]
        if not (part.isascii() and part.isdigit() and len(part) <= 10):
            raise Problem(problems.BAD_PARAMETER, "a part is a number from 0")
        if self._uploads >= UPLOADS_MAX:
            raise Problem(
                problems.CLIENT_OVER_SHARE,
                f"{UPLOADS_MAX} parts are being sent already; wait for the end of one",
            )
        self._uploads += 1
        try:
            sums = await self._receive(request, int(part))
        finally:
            self._uploads -= 1
        return Reply(wire.IndexPart.model_validate(sums).model_dump_json(by_alias=True).encode())

    async def _receive(self, request: HotRequest, part: int) -> PartSums:
        rebuild, rebuilds = request.params["rebuild"], self._rebuilds
        upload = await asyncio.to_thread(rebuilds.begin_part, rebuild, part)
        frames = FrameReader()
        try:
            async for piece in request.pieces():
                for start, items in frames.feed(piece):
                    await asyncio.to_thread(upload.add, start, items)
        except BaseException:
            upload.stop()
            raise
        return await asyncio.to_thread(_finish, rebuilds, rebuild, upload, frames.items)


def _finish(
    rebuilds: IndexRebuilds, rebuild: str, upload: PartUpload, items: int | None
) -> PartSums:
    if items is None:
        upload.stop()
        raise IndexRebuildInvalid("the last frame is missing; send the part again")
    return rebuilds.finish_part(rebuild, upload, items)


def build_plan(plan: RebuildPlan, layout: Layout) -> BuildPlan:
    """Return the plan in the engine's form."""
    files = tuple(
        PlannedFile(each.first, each.items, each.begin, each.end, each.carried_ms)
        for each in plan.files
    )
    return BuildPlan(layout, files, tuple(plan.starts), tuple(plan.firsts))
