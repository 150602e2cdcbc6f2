"""One endpoint of a service: an operation of the contract, and the function that handles it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import isclass
from typing import Any, get_type_hints

from fastapi import Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from mqstore.service import problems
from mqstore.service.app import Api, json_content
from mqstore.service.http import HotRequest, HotResult, HotRoute, Lane, Prepared
from mqstore.service.problems import ProblemType
from mqstore.wire.operation import Nothing, Operation, schema_name
from mqstore.wire.parameters import documented


@dataclass(frozen=True, slots=True, kw_only=True)
class Hot:
    """An endpoint that is served outside FastAPI, wholly or in a lane; see ``HotRoute``."""

    prepare: Callable[[HotRequest], Prepared] | None = None
    lane: Callable[[HotRequest], Lane | None] | None = None
    """Returns the lane of a request head; FastAPI serves what a lane does not."""
    any_path: bool = False
    streams: bool = False


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An operation and its handler. ``add`` serves and documents it from this one value."""

    operation: Operation[Any]
    handler: Callable[..., Any]
    """A FastAPI handler, which returns a Response or the operation's reply; for a ``hot``
    endpoint without a lane a function of a HotRequest."""
    hot: Hot | None = None
    is_guarded: bool = True
    """Whether a change is checked by ``Api.guard_changes``: not the one that allows changes, nor
    one of what a follower does by itself."""
    documented: type[BaseModel] | None = None
    """The engine's model of the reply, where it has more fields than the contract's."""

    def add(self, api: Api) -> None:
        """Add the endpoint and its models to an interface."""
        reply = self.documented or self.operation.reply
        if reply is not Nothing:
            api.add_schemas(reply)
        if self.hot is None or self.hot.lane is not None:
            self._add_cold(api, reply)
        else:
            self._add_hot(api, self.hot)
        if self.hot is not None and self.hot.lane is not None:
            self._add_lane(api, self.hot.lane, any_path=self.hot.any_path)

    def _add_cold(self, api: Api, reply: type[BaseModel]) -> None:
        operation = self.operation
        of_shards = () if api.shards is None else problems.OF_SHARDS
        api.add_cold(
            operation.path,
            self.handler,
            role=operation.role,
            is_guarded=self.is_guarded,
            documented=lambda: _responses(operation, reply, (problems.BAD_PARAMETER,), of_shards),
            name=operation.name,
            methods=[operation.method],
            summary=operation.summary,
            description=operation.description or None,
            status_code=operation.status,
            response_class=Response if self._makes_responses() else JSONResponse,
            tags=[operation.tag],
        )

    def _makes_responses(self) -> bool:
        if self.operation.reply is Nothing:
            return True
        returned = get_type_hints(self.handler)["return"]
        return isclass(returned) and issubclass(returned, Response)

    def _add_lane(
        self, api: Api, lane: Callable[[HotRequest], Lane | None], *, any_path: bool
    ) -> None:
        def prepare(request: HotRequest) -> Prepared:
            return Prepared(_leave_to_fastapi, lane=lane(request))

        method, role = self.operation.method, self.operation.role
        path = self.operation.path.replace(":path}", "}")  # a value with a slash takes no lane
        api.add_hot(HotRoute(method, path, role, None, None, prepare=prepare, any_path=any_path))

    def _add_hot(self, api: Api, hot: Hot) -> None:
        if self.operation.request is not None:
            api.add_schemas(self.operation.request)
        api.add_hot(
            HotRoute(
                self.operation.method,
                self.operation.path,
                self.operation.role,
                self.handler,
                _documented(self.operation),
                streams=hot.streams,
                prepare=hot.prepare,
                any_path=hot.any_path,
            )
        )


def _leave_to_fastapi(body: bytes, params: Mapping[str, str]) -> HotResult:
    return None


def _documented(operation: Operation[Any]) -> dict[str, Any]:
    """The OpenAPI operation object of a hot endpoint."""
    content = dict(operation.request_content)
    if operation.request is not None:
        content |= json_content(schema_name(operation.request), operation.request_example)
    first = problems.WITH_BODY if content else ()
    responses = _responses(operation, operation.reply, (*first, *problems.ANY_ROUTE))
    found: dict[str, Any] = {
        "operationId": operation.name,
        "tags": [operation.tag],
        "summary": operation.summary,
        "description": operation.description,
        "responses": {str(status): each for status, each in responses.items()},
    }
    of_query = () if operation.query is None else documented(operation.query)
    if parameters := [*operation.parameters, *of_query]:
        found["parameters"] = parameters
    if content:
        found["requestBody"] = {"required": operation.request_required, "content": content}
    return found


def _responses(
    operation: Operation[Any],
    reply: type[BaseModel],
    first: tuple[ProblemType, ...],
    last: tuple[ProblemType, ...] = (),
) -> dict[int | str, dict[str, Any]]:
    """Return the OpenAPI responses of an operation: its replies, then its problems."""
    found: dict[int | str, dict[str, Any]] = {}
    if reply is Nothing and not operation.contents:
        found[operation.status] = {"description": operation.text}
    elif reply is not Nothing:
        content = json_content(schema_name(reply), operation.example)
        found[operation.status] = {"description": operation.text, "content": content}
    for status, (text, others) in operation.contents.items():
        there = found.setdefault(status, {"description": text, "content": {}})
        there["content"] = {**there["content"], **others}
    refusals = problems.responses(*first, *operation.problems, *last, *problems.GUARDED)
    for kind, members in operation.problem_members.items():
        examples = refusals[kind.status]["content"][problems.CONTENT_TYPE]["examples"]
        examples[kind.name]["value"] |= members
    return {**found, **refusals}
