"""Base classes and common fields of the models."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    WithJsonSchema,
)
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

INT32_MIN: Final = -(2**31)
INT32_MAX: Final = 2**31 - 1
UINT32_MAX: Final = 2**32 - 1
INT64_MAX: Final = 2**63 - 1

_DIGITS: Final = re.compile("[0-9]{1,19}")


def _read_digits(given: object) -> object:
    return int(given) if isinstance(given, str) and _DIGITS.fullmatch(given) else given


Offset = Annotated[
    int,
    Field(ge=0, le=INT64_MAX, strict=True),
    BeforeValidator(_read_digits),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 0, "maximum": INT64_MAX},
                {"type": "string", "pattern": f"^{_DIGITS.pattern}$"},
            ]
        }
    ),
]
"""A 64-bit offset of a request, as a number or, for clients that round numbers, as a string."""
Milliseconds = Annotated[int, Field(description="Milliseconds since the epoch.")]
NewerInteger = Annotated[int | None, WithJsonSchema({"type": "integer"})]
"""A field that every service of this release sends; None in a reply of an earlier release."""
NewerFlag = Annotated[bool | None, WithJsonSchema({"type": "boolean"})]


class Reply(BaseModel):
    """Base of replies. Unknown fields are ignored: a later release may have more of them.

    A reply's validator is built at its first use: a command of the command line uses few replies.
    """

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        from_attributes=True,
        frozen=True,
        defer_build=True,
    )

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Mark each field as required, except those that are ``left_out``.

        A default is what the client assumes in a reply of an earlier release; services send all
        fields.
        """
        found = handler(core_schema)
        schema = handler.resolve_ref_schema(found)
        properties = schema.get("properties", {})
        required = []
        for name, each in cls.model_fields.items():
            alias = each.alias or name
            if alias not in properties:
                continue
            for unused in ("default", "title"):
                properties[alias].pop(unused, None)
            if each.exclude_if is None:
                required.append(alias)
            else:
                properties[alias] = without_null(properties[alias])
        if required:
            schema["required"] = required
        return found


class MappingReply(Reply):
    """A reply whose fields can also be read as items by their JSON names, for applications that
    were written when the client returned a dict."""

    def __getitem__(self, name: str) -> Any:
        return self.model_dump(by_alias=True)[name]


class Request(BaseModel):
    """Base of requests. Unknown fields are rejected: a misspelt one would have no effect.

    They are built at once, as FastAPI needs those of its parameters.
    """

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid")


class StrictRequest(Request):
    """A request in which no value is converted: a number in a string is rejected."""

    model_config = ConfigDict(strict=True)


class ComponentRequest(Request):
    """Base of requests that only components of mqstore send: those that need the role system.

    Unknown fields are ignored: in an upgrade the sender may be newer. So a new field of such a
    request has an effect that the sender can do without.
    """

    model_config = ConfigDict(extra="ignore")


def left_out(description: str | None = None, default: object = None) -> Any:
    """Return a field of a reply that is left out when it has its default."""
    return Field(
        default=default, exclude_if=lambda value: value == default, description=description
    )


def without_null(schema: JsonSchemaValue) -> JsonSchemaValue:
    """Return the schema of an optional value, of the value alone."""
    choices = [each for each in schema.get("anyOf", ()) if each != {"type": "null"}]
    if len(choices) != 1:
        return schema
    found: JsonSchemaValue = choices[0] | {
        name: value for name, value in schema.items() if name != "anyOf"
    }
    return found
