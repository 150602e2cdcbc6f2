"""Bodies of the index rebuild's routes."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from mqstore.storage.index.build import BuildPlan
from mqstore.storage.index.plan import Layout, PlannedFile
from mqstore.storage.layout import StoreFormat
from mqstore.storage.rebuild.index_rebuilds import LEASE_MAX_S
from mqstore.storage.rebuild.values import RebuildEnded, RebuildView

OWNER_MAX: Final = 200
PRINTABLE: Final = r"^[^\x00-\x1f\x7f]*$"
TTL_DEFAULT_S: Final = 60
PLAN_EXAMPLE: Final[dict[str, Any]] = {
    "parts": 2,
    "files": [
        {
            "first": 0,
            "items": 3000,
            "begin": [0, 1795349144061],
            "end": [3145000, 1795349150000],
            "carriedMs": 0,
        }
    ],
    "starts": [0, 1572864],
    "firsts": [0, 1500, 3000],
}
RUNNING_EXAMPLE: Final[dict[str, Any]] = {
    "id": "5f0c2a1e5f0c2a1e",
    "owner": "index-rebuild job mqstore-index-rebuild-29381",
    "shard": "0",
    "storeId": "b4a1c1de6f1c4b2c8d0c9a7e4f0d1e2a",
    "format": "5.x",
    "tags": True,
    "hashSlots": 5000000,
    "indexNum": 20000000,
    "from": 0,
    "to": 3145728,
    "segments": [{"name": "00000000000000000000", "start": 0, "end": 3145728}],
    "sinceMs": 1795349144061,
    "expiresMs": 1795349204061,
    "diskRatio": 75,
    "items": 0,
    "parts": 0,
    "partsPlanned": 0,
}
ENDED_EXAMPLE: Final[dict[str, Any]] = {
    "id": "5f0c2a1e5f0c2a1e",
    "owner": "index-rebuild job mqstore-index-rebuild-29381",
    "outcome": "published",
    "sinceMs": 1795349144061,
    "endedMs": 1795349154061,
    "items": 3000,
    "files": 1,
    "bytes": 20060040,
    "seconds": 10.0,
}
PUBLISHED_EXAMPLE: Final[dict[str, Any]] = {
    "id": "5f0c2a1e5f0c2a1e",
    "published": ["20261122153005124"],
    "replaced": ["20261122153005123"],
    "items": 3000,
    "bytes": 20060040,
}


class _Model(BaseModel):
    model_config = ConfigDict(
        extra="forbid", alias_generator=to_camel, populate_by_name=True, frozen=True
    )


Lease = Annotated[
    int, Field(ge=1, le=LEASE_MAX_S, strict=True, description="Seconds that the lease lasts.")
]


class RebuildSpec(_Model):
    """Who rebuilds; the rest only to be sure: beside a writer all is as the store has it."""

    owner: Annotated[str, Field(min_length=1, max_length=OWNER_MAX, pattern=PRINTABLE)]
    ttl_seconds: Lease = TTL_DEFAULT_S
    format: StoreFormat | None = None
    hash_slots: Annotated[int | None, Field(ge=1, strict=True)] = None
    index_num: Annotated[int | None, Field(ge=2, strict=True)] = None
    disk_ratio: Annotated[
        int | None,
        Field(
            ge=1,
            le=100,
            strict=True,
            description="Percent of the volume that staging may fill, where that is less than"
            " diskMaxUsedSpaceRatio.",
        ),
    ] = None

    model_config = ConfigDict(
        json_schema_extra={"example": {"owner": RUNNING_EXAMPLE["owner"], "ttlSeconds": 60}}
    )


class LeaseSpec(_Model):
    """A heartbeat."""

    ttl_seconds: Lease = TTL_DEFAULT_S

    model_config = ConfigDict(json_schema_extra={"example": {"ttlSeconds": 60}})


class RebuildList(_Model):
    """Null where none runs, or none has ended since the writer opened the store."""

    running: RebuildView | None
    last: RebuildEnded | None


class FilePlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A file that a sequential build would make: its items, and where they begin and end."""

    first: int
    """Items of all files before it."""
    items: int
    begin: tuple[int, int]
    """Physical offset and store time in ms of its first item, ..."""
    end: tuple[int, int]
    """... and of its last one."""
    carried_ms: int
    """Store time of the last item before, 0 without one."""


class RebuildPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which files, of which stretches of the log."""

    parts: int
    """Ranges of slots whose items are sent by themselves: slot * parts // hashSlots."""
    files: list[FilePlan]
    starts: list[int]
    """Physical offset of each chunk of the log, ascending."""
    firsts: list[int]
    """The number of each chunk's first item among all, and how many all are."""

    def build_plan(self, layout: Layout) -> BuildPlan:
        files = tuple(
            PlannedFile(each.first, each.items, each.begin, each.end, each.carried_ms)
            for each in self.files
        )
        return BuildPlan(layout, files, tuple(self.starts), tuple(self.firsts))


class PartReply(msgspec.Struct, frozen=True):
    """One part that is whole."""

    items: int
    slots: int
    """That are in use."""
