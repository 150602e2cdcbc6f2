"""The summary of an expiry report, as the job hands it in and everybody may see it."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from mqstore.wire.base import INT64_MAX

EXPIRING_MAX: Final = 200
RISKS_MAX: Final = 100
NAME_MAX: Final = 1_000

Number = Annotated[int, Field(ge=0, le=INT64_MAX, strict=True)]
Milliseconds = Annotated[int, Field(ge=-INT64_MAX, le=INT64_MAX, strict=True)]
Name = Annotated[str, Field(max_length=NAME_MAX)]

EXAMPLE: Final[dict[str, Any]] = {
    "name": "01a1b9e5-0",
    "madeMs": 1795349144061,
    "atRisk": True,
    "messages": 30000,
    "minOffset": 0,
    "maxOffset": 19641878,
    "expiring": [
        {
            "reservedHours": 72,
            "isInForce": True,
            "horizonHours": 24,
            "endOffset": 7340032,
            "segments": 7,
            "messages": 11266,
            "bytes": 7337247,
            "lost": 3713,
        }
    ],
    "risks": [
        {
            "reservedHours": 72,
            "isInForce": True,
            "horizonHours": 24,
            "kind": "group",
            "name": "billing",
            "topic": "orders",
            "messages": 3713,
            "bytes": 2431220,
            "oldestMs": 1795090000000,
            "goesMs": 1795399200000,
        }
    ],
    "risksMore": 0,
    "out": "s3://reports/mqstore",
}


class _Model(BaseModel):
    model_config = ConfigDict(
        extra="forbid", alias_generator=to_camel, populate_by_name=True, frozen=True
    )


class ExpiringSum(_Model):
    """All that goes within a horizon, by the rule in force or another fileReservedTime."""

    reserved_hours: Number
    is_in_force: Annotated[bool, Field(strict=True)]
    horizon_hours: Number
    end_offset: Annotated[Number, Field(description="All of the log below goes.")]
    segments: Number
    messages: Number
    bytes: Number
    lost: Annotated[Number, Field(description="Messages that somebody has not come to.")]


class RiskSum(_Model):
    """Messages that somebody has not come to and that go."""

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
        Milliseconds | None, Field(description="When the first of them goes, at the earliest.")
    ]


class ExpirySummary(_Model):
    """What an expiry report says in short; the report itself is where ``out`` says."""

    name: Annotated[Name, Field(description="Of the shard, as in the report's files.")]
    made_ms: Annotated[Number, Field(description="Milliseconds since the epoch.")]
    at_risk: Annotated[bool, Field(strict=True)]
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

    model_config = ConfigDict(json_schema_extra={"example": EXAMPLE})


class ExpiryReportView(_Model):
    """The last summary; null before the first one."""

    report: ExpirySummary | None
