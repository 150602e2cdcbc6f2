"""The store that store-writer has open: its state, writes, scrub, quarantine, events."""

from __future__ import annotations

from typing import Any, Final

from mqstore.wire import problems
from mqstore.wire.examples import stores as examples
from mqstore.wire.operation import Nothing, Operation, Role, Target
from mqstore.wire.stores import (
    DelayLevels,
    FlushReply,
    Operations,
    Quarantine,
    Recovery,
    RepairReport,
    Scrub,
    Segments,
    Store,
    Writes,
    WritesSpec,
)

_WRITES: Final = "/v1/store/writes"
_SCRUB: Final = "/v1/store/scrub"
_QUARANTINE: Final = "/v1/store/quarantine"
_EVENT: Final[dict[str, Any]] = {
    "type": "object",
    "description": "One event; `data` is JSON with `kind`, `atMs` and what belongs to the kind.",
    "required": ["id", "event", "data"],
    "properties": {name: {"type": "string"} for name in ("id", "event", "data")},
}

STORE: Final = Operation(
    name="store",
    targets=(Target.WRITER,),
    path="/v1/store",
    role=Role.CONSUME,
    summary="The store's bounds, format and health",
    tag="store",
    reply=Store,
)
RECOVERY: Final = Operation(
    name="recovery",
    targets=(Target.WRITER,),
    path="/v1/store/recovery",
    role=Role.CONSUME,
    summary="What recovery found and did",
    tag="store",
    reply=Recovery,
)
DELAYS: Final = Operation(
    name="delays",
    targets=(Target.WRITER,),
    path="/v1/store/delays",
    role=Role.CONSUME,
    summary="Delayed messages, by level",
    tag="store",
    reply=DelayLevels,
)
SEGMENTS: Final = Operation(
    name="segments",
    targets=(Target.WRITER,),
    path="/v1/segments",
    role=Role.CONSUME,
    summary="The commit log's files",
    tag="store",
    reply=Segments,
)
FLUSH: Final = Operation(
    name="flush",
    targets=(Target.WRITER,),
    method="POST",
    path="/v1/store:flush",
    role=Role.ADMIN,
    summary="Bring everything to disk",
    tag="store",
    reply=FlushReply,
    problems=(problems.FLUSH_TIMEOUT, problems.STORE_FAILED),
)
WRITES: Final = Operation(
    name="writes",
    targets=(Target.WRITER,),
    path=_WRITES,
    role=Role.CONSUME,
    summary="Whether messages are taken",
    tag="store",
    reply=Writes,
)
PUT_WRITES: Final = Operation(
    name="put_writes",
    targets=(Target.WRITER,),
    method="PUT",
    path=_WRITES,
    role=Role.ADMIN,
    summary="Pause writes, or let them go on",
    tag="store",
    request=WritesSpec,
    reply=Writes,
    problems=problems.WITH_BODY,
)
SCRUB: Final = Operation(
    name="progress",
    targets=(Target.WRITER,),
    path=_SCRUB,
    role=Role.CONSUME,
    summary="What the disk has changed, and how far the look at it is",
    tag="store",
    reply=Scrub,
    example=examples.SCRUB,
)
RUN_SCRUB: Final = Operation(
    name="run",
    targets=(Target.WRITER,),
    method="POST",
    path=_SCRUB + ":run",
    role=Role.ADMIN,
    summary="Look now",
    tag="store",
    reply=Scrub,
    example=examples.SCRUB,
    status=202,
    problems=(problems.STORE_READ_ONLY,),
)
REPAIR: Final = Operation(
    name="repair",
    targets=(Target.WRITER,),
    method="POST",
    path=_SCRUB + ":repair",
    role=Role.ADMIN,
    summary="Repair the log",
    tag="store",
    reply=RepairReport,
    example=examples.REPAIR,
    problems=(problems.STORE_READ_ONLY, problems.STORE_FAILED, problems.REPAIR_REFUSED),
)
QUARANTINE: Final = Operation(
    name="quarantine",
    targets=(Target.WRITER,),
    path=_QUARANTINE,
    role=Role.CONSUME,
    summary="Bytes that recoveries and repairs set aside",
    tag="store",
    reply=Quarantine,
    example=examples.QUARANTINE,
)
REMOVE_QUARANTINED: Final = Operation(
    name="remove_quarantined",
    targets=(Target.WRITER,),
    method="DELETE",
    path=_QUARANTINE + "/{name}",
    role=Role.ADMIN,
    summary="Remove an entry of the quarantine",
    tag="store",
    reply=Nothing,
    status=204,
    problems=(problems.QUARANTINE_ENTRY_UNKNOWN,),
)
EVENTS: Final = Operation(
    name="events",
    targets=(Target.WRITER,),
    path="/v1/events",
    role=Role.CONSUME,
    summary="What happens in the store, as server-sent events",
    tag="store",
    reply=Nothing,
    contents={
        200: (
            "Events, one after the other, until the client ends the connection.",
            {"text/event-stream": {"schema": _EVENT, "example": examples.EVENT}},
        )
    },
)
OPERATIONS: Final = Operation(
    name="operations",
    targets=(Target.WRITER,),
    path="/v1/operations",
    role=Role.CONSUME,
    summary="What takes long: running, and ended last",
    tag="store",
    reply=Operations,
)
