"""Query parameters of requests, as models: for the route, its document and the client."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any, Final, NamedTuple

from pydantic import BeforeValidator, ConfigDict, Field, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from mqstore.wire.base import INT32_MAX, Request, without_null
from mqstore.wire.limits import COUNT_MAX

EXAMPLES = "openapi_examples"
"""Member of a field's schema whose value belongs beside the schema in a document."""
_NUMBER: Final = re.compile(r"[0-9]{1,19}(\.[0-9]{0,9})?")


def _require_digits(given: object) -> object:
    if isinstance(given, str) and not _NUMBER.fullmatch(given):
        raise ValueError("it should be a number, in digits")
    return given


def _require_integer(given: object) -> object:
    if isinstance(given, str) and "." in given:
        raise ValueError("it should be an integer, in digits")
    return _require_digits(given)


NUMBER: Final = BeforeValidator(_require_digits)
"""A number without sign or exponent: hot routes take no other spelling."""
INTEGER: Final = BeforeValidator(_require_integer)
OfShard = Annotated[int | None, Field(ge=0, le=INT32_MAX), INTEGER]
PageCursor = Annotated[
    str | None, Field(max_length=16_384, description="`next` of the previous reply.")
]


class Shown(NamedTuple):
    """An example of a parameter, as metadata of its field."""

    name: str
    value: object

    def __get_pydantic_json_schema__(
        self, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return handler(core_schema) | {EXAMPLES: {self.name: {"value": self.value}}}


class Parameters(Request):
    """Base of query parameters. Services refuse unknown ones before: `shard` may be beside those of
    a model."""

    model_config = ConfigDict(extra="ignore")


class ShardParameters(Parameters):
    """The shard that a request is for."""

    shard: Annotated[
        OfShard, Field(description="The only shard to use; without it, any of them.")
    ] = None


class CursorParameters(Parameters):
    """The place in a list over shards."""

    cursor: PageCursor = None


class ListParameters(Parameters):
    """A page of a list that is sorted by name."""

    limit: Annotated[
        int, Field(ge=1, le=COUNT_MAX, description="Maximum number of entries in the reply.")
    ] = COUNT_MAX
    cursor: Annotated[
        str | None, Field(max_length=1_000, description="`next` of the previous reply.")
    ] = None


def documented(model: type[Parameters]) -> Iterator[dict[str, Any]]:
    """Yield the OpenAPI object of each parameter of a model."""
    schema = model.model_json_schema()
    kinds = schema.get("$defs", {})
    for name, each in schema["properties"].items():
        found = without_null(each)
        kind = kinds.get(found.pop("$ref", "").rpartition("/")[2], {})
        found = {key: value for key, value in {**kind, **found}.items() if key != "title"}
        if found.get("default", ...) is None:
            del found["default"]
        text, shown = found.pop("description", ""), found.pop(EXAMPLES, None)
        parameter = {"name": name, "in": "query", "schema": found, "description": text}
        yield parameter if shown is None else {**parameter, "examples": shown}
