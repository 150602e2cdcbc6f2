"""One endpoint of a service: its path, role, handler and replies, and its documentation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fastapi import Response
from pydantic import BaseModel

from mqstore.service import problems
from mqstore.service.app import Api, json_content
from mqstore.service.auth import Role
from mqstore.service.http import HotRequest, HotRoute
from mqstore.service.problems import ProblemType
from mqstore.service.quick import Prepared

Content = Mapping[str, Mapping[str, Any]]
"""An OpenAPI ``content`` object, by media type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hot:
    """What an endpoint needs that is served outside FastAPI, which documents the others by the
    signatures of their handlers."""

    name: str
    """Its ``operationId``."""
    description: str
    parameters: tuple[Mapping[str, Any], ...] = ()
    """OpenAPI parameter objects, those of the path included."""
    prepare: Callable[[HotRequest], Prepared] | None = None
    any_path: bool = False
    streams: bool = False
    """See ``HotRoute``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """An operation of the API; ``add`` registers it, and documents it from the same value."""

    method: str = "GET"
    path: str
    role: Role
    handler: Callable[..., Any]
    """FastAPI's, which returns a Response; of a ``hot`` one a function of a HotRequest."""
    summary: str
    tag: str
    reply: type[BaseModel] | None = None
    """The model of the reply in JSON, ..."""
    example: Any = None
    """... and an example of it."""
    status: int = 200
    text: str = "Done."
    contents: Mapping[int, tuple[str, Content]] = field(default_factory=dict)
    """Other replies by status: a description, and the content that stands beside ``reply``."""
    problems: tuple[ProblemType, ...] = ()
    """Besides those that every endpoint of the API may reply with."""
    hot: Hot | None = None

    def add(self, api: Api) -> None:
        """Put the endpoint, and its models, into an interface."""
        if self.reply is not None:
            api.add_schemas(self.reply)
        if self.hot is None:
            self._add_cold(api)
        else:
            self._add_hot(api, self.hot)

    def _add_cold(self, api: Api) -> None:
        api.app.add_api_route(
            self.path,
            self.handler,
            methods=[self.method],
            summary=self.summary,
            status_code=self.status,
            response_class=Response,
            responses=self._responses(problems.BAD_PARAMETER),
            tags=[self.tag],
            dependencies=[api.requires(self.role)],
        )

    def _add_hot(self, api: Api, hot: Hot) -> None:
        responses = self._responses(*problems.ANY_ROUTE)
        operation: dict[str, Any] = {
            "operationId": hot.name,
            "tags": [self.tag],
            "summary": self.summary,
            "description": hot.description,
            "parameters": list(hot.parameters),
            "responses": {str(status): each for status, each in responses.items()},
        }
        api.add_hot(
            HotRoute(
                self.method,
                self.path,
                self.role,
                self.handler,
                operation,
                streams=hot.streams,
                prepare=hot.prepare,
                any_path=hot.any_path,
            )
        )

    def _responses(self, *kinds: ProblemType) -> dict[int | str, dict[str, Any]]:
        """OpenAPI responses: the replies, and the problems instead of them."""
        found: dict[int | str, dict[str, Any]] = {}
        if self.reply is not None:
            name = self.reply.model_config.get("title") or self.reply.__name__
            found[self.status] = {
                "description": self.text,
                "content": json_content(name, self.example),
            }
        for status, (text, content) in self.contents.items():
            there = found.setdefault(status, {"description": text, "content": {}})
            there["content"] = {**there["content"], **content}
        kinds = (*kinds, *self.problems, *problems.OF_SHARDS, *problems.GUARDED)
        return {**found, **problems.responses(*kinds)}
