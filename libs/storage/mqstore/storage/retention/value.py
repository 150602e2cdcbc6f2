"""The base of retention's values: immutable, and in JSON under camelCase names."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel


class Value(BaseModel):
    """An immutable value with camelCase names in JSON."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True
    )
