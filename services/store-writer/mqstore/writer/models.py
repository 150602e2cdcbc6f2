"""Replies of store-writer that hold values of the engine as they are."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from mqstore.storage.own.quarantine import QuarantineEntry
from mqstore.wire.base import Reply


class QuarantineList(Reply):
    """By name."""

    bytes: Annotated[int, Field(description="Of all entries.")]
    entries: list[QuarantineEntry]
