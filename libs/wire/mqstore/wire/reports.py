"""The summary of an expiry report, as the job sends it and every consumer may read it."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import ConfigDict, Field

from mqstore.wire.base import INT64_MAX, ComponentRequest, Reply
from mqstore.wire.examples import reports as examples

EXPIRING_MAX: Final = 200
RISKS_MAX: Final = 100
NAME_MAX: Final = 1_000

Number = Annotated[int, Field(ge=0, le=INT64_MAX, strict=True)]
Milliseconds = Annotated[int, Field(ge=-INT64_MAX, le=INT64_MAX, strict=True)]
Name = Annotated[str, Field(max_length=NAME_MAX)]


class _Sum(ComponentRequest):
    model_config = ConfigDict(frozen=True)


class ExpiringSum(_Sum):
    """Sums of messages deleted within a horizon, by the rule in force or another reserved time."""

    reserved_hours: Number
    is_in_force: Annotated[bool, Field(strict=True)]
    horizon_hours: Number
    end_offset: Annotated[Number, Field(description="All of the log below is deleted.")]
    segments: Number
    messages: Number
    bytes: Number
    lost: Annotated[
        Number,
        Field(description="Messages that a group, a delay level or a transaction still needs."),
    ]


class RiskSum(_Sum):
    """Messages that are deleted although a group, delay level or transaction needs them."""

    reserved_hours: Number
    is_in_force: Annotated[bool, Field(strict=True)]
    horizon_hours: Number
    kind: Literal["group", "delay", "half"]
    name: Annotated[Name, Field(description="Of the group; of the delay level; else empty.")]
    topic: Name
    messages: Number
    bytes: Number
    oldest_ms: Milliseconds | None
    goes_ms: Annotated[
        Milliseconds | None,
        Field(description="When the first of them is deleted, at the earliest."),
    ]


class ExpirySummary(_Sum):
    """The summary of an expiry report; ``out`` is the place of the whole report."""

    name: Annotated[Name, Field(description="Of the shard, as in the report's files.")]
    made_ms: Annotated[Number, Field(description="Milliseconds since the epoch.")]
    at_risk: Annotated[
        bool, Field(strict=True, description="A reader will lose messages to retention.")
    ]
    disk_fills: Annotated[
        bool,
        Field(
            strict=True,
            description="The disk will pass a level at which the oldest messages are deleted, or"
            " messages are refused.",
        ),
    ] = False
    messages: Annotated[Number, Field(description="In the log.")]
    min_offset: Number
    max_offset: Number
    expiring: Annotated[tuple[ExpiringSum, ...], Field(max_length=EXPIRING_MAX)]
    risks: Annotated[
        tuple[RiskSum, ...],
        Field(max_length=RISKS_MAX, description="Of the longest horizon, the most urgent first."),
    ]
    risks_more: Annotated[Number, Field(description="That are not listed.")] = 0
    out: Annotated[Name, Field(description="Where the whole report is.")] = ""

    model_config = ConfigDict(json_schema_extra={"example": examples.EXPIRY})


class ExpiryReport(Reply):
    """The summary of the last expiry report, as in the OpenAPI document; None before the first."""

    report: dict[str, Any] | None
