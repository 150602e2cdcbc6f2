"""Models of the client only; those of requests and replies are in ``mqstore.wire``."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

Hidden = Literal["delayed", "half"]
"""Messages that are not in their topic yet: delayed ones, and those of undecided transactions."""


class Download(BaseModel):
    """Bytes of a message's body or of the log."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    content: bytes
    total: int
    """Size in bytes of the whole that ``content`` is a part of."""
    tag: str | None = None
    """ETag: parts with equal tags belong to one whole."""


class Health(BaseModel):
    """The reply to a probe, also with the status 503."""

    model_config = ConfigDict(extra="allow", frozen=True, defer_build=True)

    status: str
    detail: str = ""
    stage: str = ""
    """The step of a start, with ``done`` of ``total`` units."""
    done: int = 0
    total: int = 0
