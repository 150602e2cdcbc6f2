"""What the services answer, as the client gives it. Unknown fields are kept out of the way."""

from __future__ import annotations

import base64
from typing import Any, Literal

from crc32c import crc32c
from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

Hidden = Literal["delayed", "half"]
"""Messages that stand elsewhere until they are delivered or decided."""


class Model(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, frozen=True)


class NewMessage(BaseModel):
    """A message to store. ``body`` is bytes or text (stored as UTF-8)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    body: bytes | str = b""
    tags: str | None = None
    keys: tuple[str, ...] = ()
    properties: dict[str, str] = Field(default_factory=dict)
    queue_id: int | None = None
    flag: int = 0
    delay_level: int = 0
    """0: at once; else a level of the store's messageDelayLevel."""
    uniq_key: str | None = None

    def as_json(self) -> dict[str, object]:
        """The request's form, with the body's checksum; what was not given is left out."""
        if isinstance(self.body, str):
            body = self.body.encode()
            members: dict[str, object] = {"body": self.body}
        else:
            body = self.body
            members = {"bodyBase64": base64.b64encode(body).decode()}
        members["crc32c"] = crc32c(body)
        optional = {
            "tags": self.tags,
            "keys": list(self.keys),
            "properties": self.properties,
            "queueId": self.queue_id,
            "flag": self.flag,
            "delayLevel": self.delay_level,
            "uniqKey": self.uniq_key,
        }
        return members | {k: v for k, v in optional.items() if v or v == 0}


class Recovery(BaseModel):
    """The recovery report; its fields are those of the service's OpenAPI document."""

    model_config = ConfigDict(extra="allow", frozen=True)

    plan: dict[str, Any]


class ScrubFinding(Model):
    """Bytes of the log that are not as they were written, and what they are of, where that is
    known."""

    offset: int
    length: int
    found_at_ms: int
    field: str | None = None
    record_offset: int | None = None
    topic: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None


class LogRepair(Model):
    """A place of the log that a repair changed; ``quarantined`` names the damaged bytes."""

    offset: int
    length: int
    kind: str
    """restore-bytes, place-tombstone or close-segment."""
    topic: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None
    quarantined: str
    repaired_at_ms: int


class RepairReport(Model):
    """The report of a repair of the log; its fields are those of the OpenAPI document."""

    plan: dict[str, Any]
    done: bool
    """False for a dry run, and where nothing had to be done."""
    quarantined: tuple[str, ...]


class Scrub(Model):
    """How far the log was compared with its block checksums; ``position`` is None between two
    passes."""

    position: int | None
    began_at_ms: int
    checked_bytes: int
    last_pass_ended_at_ms: int | None
    finding_count: int
    findings: tuple[ScrubFinding, ...]
    repair_count: int = 0
    tombstone_count: int = 0
    repairs: tuple[LogRepair, ...] = ()


class Retention(Model):
    """What would be deleted, when and why; its parts are those of the OpenAPI document."""

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


class ExpiryReport(Model):
    """The last expiry report's summary, whose parts are those of the OpenAPI document; None before
    the first one."""

    report: dict[str, Any] | None


class Nothing(BaseModel):
    """An answer without content."""


class Download(BaseModel):
    """Bytes as they were sent: a body, or a part of the log."""

    model_config = ConfigDict(frozen=True)

    content: bytes
    total: int
    """Bytes of the whole that ``content`` is a part of."""
    tag: str | None = None
    """ETag: parts with the same one fit together."""


class Health(BaseModel):
    """What a probe answers, also with 503."""

    model_config = ConfigDict(extra="allow", frozen=True)

    status: str
    detail: str = ""
    stage: str = ""
    """Of the start: what is being done, and how much of it."""
    done: int = 0
    total: int = 0
