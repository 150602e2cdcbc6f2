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
    request: type[BaseModel] | None = None
    """The model of its body in JSON, ..."""
    request_example: Any = None
    """... and an example of it."""
    request_content: Content = field(default_factory=dict)
    """Bodies of other types, beside JSON or without it."""
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
    """Besides those that every endpoint of its kind may reply with; a cold one takes ``?shard=``,
    whose problems are among these."""
    problem_members: Mapping[ProblemType, Mapping[str, Any]] = field(default_factory=dict)
    """Members beside the standard ones, which the examples of problems show."""
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
            responses=self._responses((problems.BAD_PARAMETER,), problems.OF_SHARDS),
            tags=[self.tag],
            dependencies=[api.requires(self.role)],
        )

    def _add_hot(self, api: Api, hot: Hot) -> None:
        body = dict(hot.request_content)
        if hot.request is not None:
            api.add_schemas(hot.request)
            body |= json_content(schema_name(hot.request), hot.request_example)
        responses = self._responses((*(problems.WITH_BODY if body else ()), *problems.ANY_ROUTE))
        operation: dict[str, Any] = {
            "operationId": hot.name,
            "tags": [self.tag],
            "summary": self.summary,
            "description": hot.description,
            "responses": {str(status): each for status, each in responses.items()},
        }
        if hot.parameters:
            operation["parameters"] = list(hot.parameters)
        if body:
            operation["requestBody"] = {"required": True, "content": body}
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

    def _responses(
        self, first: tuple[ProblemType, ...], last: tuple[ProblemType, ...] = ()
    ) -> dict[int | str, dict[str, Any]]:
        """OpenAPI responses: the replies, and the problems instead of them, in this order."""
        found: dict[int | str, dict[str, Any]] = {}
        if self.reply is not None:
            content = json_content(schema_name(self.reply), self.example)
            found[self.status] = {"description": self.text, "content": content}
        for status, (text, others) in self.contents.items():
            there = found.setdefault(status, {"description": text, "content": {}})
            there["content"] = {**there["content"], **others}
        refusals = problems.responses(*first, *self.problems, *last, *problems.GUARDED)
        for kind, members in self.problem_members.items():
            examples = refusals[kind.status]["content"][problems.CONTENT_TYPE]["examples"]
            examples[kind.name]["value"] |= members
        return {**found, **refusals}


def schema_name(model: type[BaseModel]) -> str:
    """The name of a model among the schemas of the OpenAPI document: its title."""
    return model.model_config.get("title") or model.__name__
