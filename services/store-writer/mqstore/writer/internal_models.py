"""What the internal routes read and answer."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta
from pydantic import BaseModel, ConfigDict, Field

from mqstore.wire.base import INT64_MAX

DAMAGE_MAX: Final = 1_024
"""Offsets of one report: as many blocks wait for the scrub at most."""
DAMAGE_EXAMPLE: Final[dict[str, Any]] = {"waiting": 1}
OFFSETS_EXAMPLE: Final[dict[str, Any]] = {"offsets": {"orders@billing": {"0": 42, "1": 40}}}


class DamageSpec(BaseModel):
    """Where look-ups met damage."""

    model_config = ConfigDict(extra="forbid")

    offsets: Annotated[
        list[Annotated[int, Field(ge=0, le=INT64_MAX, strict=True)]],
        Field(min_length=1, max_length=DAMAGE_MAX, description="Physical offsets in the log."),
    ]


class DamageReply(BaseModel):
    """The length of the scrub's queue of reported blocks."""

    waiting: Annotated[int, Field(description="Blocks that wait; 1,024 at most.")]


class AllOffsets(msgspec.Struct, gc=False):
    """The committed offsets of all groups, from store-writer's memory."""

    offsets: Annotated[
        dict[str, dict[int, int]],
        Meta(description="The next message to consume, by `TOPIC@GROUP` and queue id."),
    ]
