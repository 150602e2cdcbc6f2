"""store-writer's routes of an index rebuild: a lease, a plan, parts as streams, publication."""

from __future__ import annotations

import asyncio
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any, Final

import msgspec
from fastapi import Path as PathParameter

from mqstore.service import bodies, problems
from mqstore.service.app import Api, documented, json_content
from mqstore.service.auth import Role
from mqstore.service.http import HotRequest, HotRoute, refuse_unknown
from mqstore.service.problems import Problem, ProblemType
from mqstore.service.reply import Reply
from mqstore.storage.errors import IndexRebuildInvalid
from mqstore.storage.rebuild.index_rebuilds import IndexRebuilds
from mqstore.storage.rebuild.part_upload import PartUpload
from mqstore.storage.rebuild.values import PartSums, Published, RebuildView
from mqstore.writer import control
from mqstore.writer.part_frames import FrameReader
from mqstore.writer.rebuild_models import (
    ENDED_EXAMPLE,
    PLAN_EXAMPLE,
    PUBLISHED_EXAMPLE,
    RUNNING_EXAMPLE,
    FilePlan,
    LeaseSpec,
    PartReply,
    RebuildList,
    RebuildPlan,
    RebuildSpec,
)
from mqstore.writer.service import WriterService

PATH: Final = "/v1/index-rebuilds"
_ONE: Final = PATH + "/{rebuild}"
PLAN_SIZE_MAX: Final = 64 << 20
"""Bytes of a plan: some two million chunks."""
UPLOADS_MAX: Final = 2
"""Parts that come at the same time."""
STREAM_TYPE: Final = b"application/octet-stream"
_PLAN_KINDS: Final = (problems.DISK_FULL, problems.INDEX_REBUILD_INVALID)

RebuildId = Annotated[
    str,
    PathParameter(max_length=100, openapi_examples={"a rebuild": {"value": RUNNING_EXAMPLE["id"]}}),
]


class IndexRebuildRoutes:
    """For the index rebuild's job, role system; looking is for whoever may consume."""

    def __init__(self, service: WriterService) -> None:
        self._service = service
        self._plans = msgspec.json.Decoder(RebuildPlan)
        self._uploads = 0

    def add(self, api: Api) -> None:
        """Put the routes into store-writer's interface."""
        add = partial(control.add, api, tag="index")
        listed = control.answers({"running": RUNNING_EXAMPLE, "last": ENDED_EXAMPLE})
        begun = _kinds(RUNNING_EXAMPLE, problems.INDEX_REBUILD_RUNNING, status=HTTPStatus.CREATED)
        what = "The index rebuild that runs, and the last one"
        add("GET", PATH, self.rebuilds, what, 200, listed)
        what, system = "Begin to rebuild the index", Role.SYSTEM
        add("POST", PATH, self.begin, what, HTTPStatus.CREATED, begun, role=system)
        leased = _kinds(RUNNING_EXAMPLE)
        what = "Go on with the lease of a rebuild"
        add("PUT", _ONE + "/lease", self.renew, what, 200, leased, role=system)
        published = _kinds(PUBLISHED_EXAMPLE, problems.STAGING_DAMAGED)
        what = "Let the new files be the index"
        add("POST", _ONE + ":publish", self.publish, what, 200, published, role=system)
        gone = problems.responses(problems.INDEX_REBUILD_UNKNOWN, problems.INDEX_REBUILD_REFUSED)
        what = "Give a rebuild up"
        add("DELETE", _ONE, self.give_up, what, HTTPStatus.NO_CONTENT, gone, role=system)
        api.add_schemas(RebuildPlan, FilePlan, PartReply)
        for path, handler, operation in (
            (_ONE + "/plan", self._plan, _plan_operation()),
            (_ONE + "/parts/{part}", self._part, _part_operation()),
        ):
            api.add_hot(HotRoute("PUT", path, system, handler, operation, streams=True))

    @property
    def _rebuilds(self) -> IndexRebuilds:
        return self._service.store.rebuilds

    async def rebuilds(self) -> RebuildList:
        rebuilds = self._rebuilds
        return RebuildList(running=rebuilds.running, last=rebuilds.last)

    async def begin(self, spec: RebuildSpec) -> RebuildView:
        """From `to` on the writer indexes into a file of its own; all below, which is on disk and
        kept from deletion up to keepDiskCeilingRatio, is for the job. One at a time; it is
        discarded when its lease lapses."""
        return await asyncio.to_thread(
            self._rebuilds.begin,
            spec.owner,
            lease_s=spec.ttl_seconds,
            store_format=spec.format,
            hash_slots=spec.hash_slots,
            index_num=spec.index_num,
            disk_ratio=spec.disk_ratio,
        )

    async def renew(self, rebuild: RebuildId, spec: LeaseSpec) -> RebuildView:
        """The lease then ends `ttlSeconds` from now."""
        return await asyncio.to_thread(self._rebuilds.heartbeat, rebuild, spec.ttl_seconds)

    async def publish(self, rebuild: RebuildId) -> Published:
        """When every part is there: the files are synced, read again, and take the place of all
        that were there, while messages are put and found. A second request waits for the first,
        and has the same answer."""
        return await asyncio.to_thread(self._rebuilds.publish, rebuild)

    async def give_up(self, rebuild: RebuildId) -> None:
        """What was staged is removed; the index is as it was."""
        await asyncio.to_thread(self._rebuilds.give_up, rebuild)

    async def _plan(self, request: HotRequest) -> Reply:
        self._service.require_writable()
        refuse_unknown(request.query(), ())
        if not bodies.says_json(request.media_type.decode("latin-1")):
            raise bodies.not_json()
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
        return rebuilds.plan(rebuild, plan.build_plan(rebuilds.layout), plan.parts)

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
        return Reply(msgspec.json.encode(PartReply(sums.items, sums.slots)))

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


def _kinds(example: dict[str, Any], *kinds: ProblemType, status: int = 200) -> control.Answers:
    own = (problems.INDEX_REBUILD_UNKNOWN, problems.INDEX_REBUILD_REFUSED, *kinds)
    return control.answers(example, *own, *problems.WITH_BODY, status=status)


def _operation(name: str, summary: str, text: str, body: dict[str, Any]) -> dict[str, Any]:
    answers = documented(
        "RebuildView" if name == "plan" else "PartReply",
        RUNNING_EXAMPLE if name == "plan" else {"items": 1500, "slots": 1400},
        *problems.WITH_BODY,
        problems.HEADERS_TOO_LARGE,
        problems.INTERNAL,
        problems.INDEX_REBUILD_UNKNOWN,
        problems.INDEX_REBUILD_REFUSED,
        *_PLAN_KINDS,
        *problems.READ_ONLY_KINDS,
        *problems.GUARDED,
    )
    names = ["rebuild"] if name == "plan" else ["rebuild", "part"]
    return {
        "operationId": f"index_rebuild_{name}",
        "tags": ["index"],
        "summary": summary,
        "description": text,
        "parameters": [_parameter(each) for each in names],
        "requestBody": {"required": True, "content": body},
        "responses": {str(status): answer for status, answer in answers.items()},
    }


def _parameter(name: str) -> dict[str, Any]:
    schema = {"type": "string"} if name == "rebuild" else {"type": "integer", "minimum": 0}
    example = RUNNING_EXAMPLE["id"] if name == "rebuild" else 0
    return {"name": name, "in": "path", "required": True, "schema": schema, "example": example}


def _plan_operation() -> dict[str, Any]:
    return _operation(
        "plan",
        "Say which index files a rebuild makes",
        "The files of a sequential build of the log from `from` to `to`, told from counts. They "
        "are reserved on disk before it is answered; the same plan again changes nothing.",
        json_content("RebuildPlan", PLAN_EXAMPLE),
    )


def _part_operation() -> dict[str, Any]:
    return _operation(
        "part",
        "Send one part's items",
        "A stream of any length: frames of start 8, length 4, CRC-32C 4 (big-endian) and `length` "
        "bytes of items, 24 bytes each, chunks in the order of the log; the last frame has start "
        "2^64-1 and the number of all items, 8 bytes. A part that is sent again begins anew.",
        {STREAM_TYPE.decode(): {"schema": {"type": "string", "format": "binary"}}},
    )
