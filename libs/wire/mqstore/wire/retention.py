"""Retention: the plan of deletions, and what keeps the log from it: pins and the archive."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import ConfigDict, Field, model_validator

from mqstore.wire.base import INT64_MAX, Reply, Request
from mqstore.wire.limits import PIN_LEASE_MAX_S


class ArchiveMark(Reply):
    """The progress of the archive. Offsets are physical, times milliseconds since the epoch."""

    offset: Annotated[int, Field(description="Everything below is archived, or was deleted.")]
    place: Annotated[str, Field(description="Place of the archive, as its job gave it.")]
    since_ms: Annotated[int, Field(description="When retention began to wait for it.")]
    marked_ms: int


class Pin(Reply):
    """A lease of a range of the log. Offsets are physical, times milliseconds since the epoch."""

    name: str
    from_offset: Annotated[int, Field(description="The first byte that is needed.")]
    to_offset: Annotated[int | None, Field(description="Behind the last one; null: to the end.")]
    why: Annotated[str, Field(description="Reason, as its owner gave it.")]
    created_ms: int
    expires_ms: Annotated[int, Field(description="Ends then, unless put again before.")]


class ArchiveSpec(Request):
    """The progress of an archive."""

    offset: Annotated[
        int, Field(ge=0, le=INT64_MAX, strict=True, description="Everything below is archived.")
    ]
    place: Annotated[str, Field(min_length=1, max_length=1_000, description="Where.")]

    model_config = ConfigDict(
        json_schema_extra={"example": {"offset": 1073741824, "place": "s3://archive/orders"}},
    )


class Archive(Reply, title="ArchiveView"):
    """The archive that retention waits for; null: none."""

    archive: ArchiveMark | None


class PinSpec(Request):
    """A range of the log to keep, and for how long."""

    from_offset: Annotated[int, Field(ge=0, le=INT64_MAX, strict=True)]
    to_offset: Annotated[
        int | None,
        Field(ge=1, le=INT64_MAX, strict=True, description="Behind the last byte; null: the end."),
    ] = None
    lease_seconds: Annotated[int, Field(ge=1, le=PIN_LEASE_MAX_S, strict=True)] = 300
    why: Annotated[str, Field(max_length=200, description="Shown in the plan.")] = ""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {"fromOffset": 0, "leaseSeconds": 300, "why": "nightly backup"}
        },
    )

    @model_validator(mode="after")
    def _is_a_range(self) -> PinSpec:
        if self.to_offset is not None and self.to_offset <= self.from_offset:
            raise ValueError("the range is empty: toOffset must be greater than fromOffset")
        return self


class Pins(Reply, title="PinList"):
    """The pins, by name."""

    pins: tuple[Pin, ...]


class Retention(Reply):
    """The plan of deletions: what, when and why. The OpenAPI document has the fields."""

    made_ms: int
    rule: dict[str, Any]
    triggers: tuple[str, ...]
    next_hour_ms: int
    puts_refused: bool
    puts_refused_why: str | None = None
    holds_honoured: bool
    volumes: tuple[dict[str, Any], ...]
    holds: tuple[dict[str, Any], ...]
    segments: tuple[dict[str, Any], ...]
    bytes_to_go: int
