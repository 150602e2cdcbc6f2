"""The description of an operation of the REST API, for services, documentation and client."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict

from mqstore import wire
from mqstore.wire.problems import ProblemType

if TYPE_CHECKING:
    from mqstore.wire.parameters import Parameters

Answer = TypeVar("Answer", bound=BaseModel)
Content = Mapping[str, Mapping[str, Any]]
"""An OpenAPI ``content`` object, by media type."""
BINARY: Final = "application/octet-stream"
BYTES: Final[Content] = {BINARY: {"schema": {"type": "string", "format": "binary"}}}
RELAY: Final = "X-Mqstore-Relay"
"""Header of a produce that any shard forwards to the shard that is meant."""
_NAME: Final = "[%|a-zA-Z0-9_-]+"
GROUP_SCHEMA: Final = {"pattern": f"^{_NAME}$", "maxLength": 120}
"""Names of groups."""
NEW_TOPIC_SCHEMA: Final = {"pattern": f"^{_NAME}$", "maxLength": 255}
"""Names of topics that a request creates, deletes or sends to: 127 characters, or 255 for retry and
dead-letter topics in a store of format 5.x."""
TOPIC_SCHEMA: Final = {
    "pattern": rf"^({_NAME}|%RETRY%{_NAME}\+{_NAME}|%LMQ%[^/\\]+)$",
    "maxLength": 255,
}
"""Names of topics that a request reads: also of retry topics of POP consumers of 5.x, and of light
queues."""


def _topic_parameter(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    return {
        "name": "topic",
        "in": "path",
        "required": True,
        "schema": {"type": "string", **schema},
        "example": "orders",
    }


TOPIC_PARAMETER: Final = _topic_parameter(TOPIC_SCHEMA)
SEND_TOPIC_PARAMETER: Final = _topic_parameter(NEW_TOPIC_SCHEMA)


_PARAMETER: Final = re.compile(r"\{(\w+)(:path)?\}")


def schema_name(model: type[BaseModel]) -> str:
    """Return the name of a model's schema in the OpenAPI document: its title."""
    return model.model_config.get("title") or model.__name__


def json_of(model: type[BaseModel]) -> Content:
    """Return an OpenAPI ``content`` object for a model."""
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema_name(model)}"}}}


class Target(Enum):
    """A service."""

    WRITER = "writer"
    QUERY = "query"
    COORDINATOR = "coordinator"


class Role(StrEnum):
    """A role of a token: the operations that it allows."""

    PRODUCE = "produce"
    CONSUME = "consume"
    ADMIN = "admin"
    """Topics and settings, and all that produce and consume may."""
    SYSTEM = "system"
    """Other services of mqstore: everything."""


class Nothing(BaseModel):
    """A reply without content."""

    model_config = ConfigDict(defer_build=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation(Generic[Answer]):
    """A method of a path: who may call it, with what, and the replies."""

    name: str
    """Its ``operationId``."""
    targets: tuple[Target, ...]
    """The services that offer it; the client calls the first one."""
    method: str = "GET"
    idempotent: bool = False
    """Whether a POST may be repeated, with the effect of one; other methods may (RFC 9110)."""
    path: str
    """With parameters in braces; ``{id:path}`` is one that may contain slashes."""
    role: Role | None
    """The role that it needs; None: any token."""
    summary: str
    tag: str
    description: str = ""
    """Without one: the docstring of its handler."""
    parameters: tuple[Mapping[str, Any], ...] = ()
    """OpenAPI parameter objects, those of the path included, of a handler outside FastAPI, which
    documents the others by their signatures; without those of ``query``."""
    query: type[Parameters] | None = None
    """The model of its query parameters."""
    request: type[BaseModel] | None = None
    """The model of its body in JSON, ..."""
    request_example: Any = None
    """... and an example of it."""
    request_content: Content = field(default_factory=dict)
    """Bodies of other types, beside JSON or without it."""
    request_required: bool = True
    reply: type[Answer]
    """The model of the reply in JSON, ..."""
    example: Any = None
    """... and an example of it."""
    status: int = 200
    text: str = "Done."
    contents: Mapping[int, tuple[str, Content]] = field(default_factory=dict)
    """Other replies by status: a description, and the content that stands beside ``reply``."""
    problems: tuple[ProblemType, ...] = ()
    """Besides those that every operation may reply with."""
    problem_members: Mapping[ProblemType, Mapping[str, Any]] = field(default_factory=dict)
    """Members beside the standard ones, which the examples of problems show."""

    @property
    def may_be_repeated(self) -> bool:
        """Whether a request that may have taken effect may be sent again."""
        return self.idempotent or self.method != "POST"

    def path_for(self, **parameters: str | int) -> str:
        """Return the path with the values of all its parameters, percent-encoded.

        Raises ValueError for a name that no segment of a path can hold.
        """
        return _PARAMETER.sub(
            lambda found: _segment(found[1], str(parameters[found[1]]), is_path=bool(found[2])),
            self.path,
        )


def _segment(parameter: str, value: str, *, is_path: bool) -> str:
    if not is_path and (value in ("", ".", "..") or "/" in value):
        what = parameter if parameter.endswith("name") else f"{parameter} name"
        raise ValueError(
            f"{value[:80]!r} is no {what}: it is empty, '.' or '..', or has a '/'; use"
            " letters, digits, '_' and '-'"
        )
    return quote(value, safe="")


def all_operations() -> list[Operation[Any]]:
    """Return every operation of every service."""
    names = [each.name for each in iter_modules(wire.__path__)]
    modules = [import_module(f"{wire.__name__}.{name}") for name in names]
    return [
        value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, Operation)
    ]
