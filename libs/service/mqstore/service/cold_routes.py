"""Routes that FastAPI serves: their checks, and what the document says of their replies.

FastAPI analyses the dependencies of a route for each route anew, and its replies at the start. Both
would take most of the time in which a service starts: checks are no dependencies here, and replies
are documented for the document only.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterator
from inspect import isclass
from typing import Annotated, Any, Final

from fastapi import Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import Field, TypeAdapter, ValidationError

from mqstore.service import bodies
from mqstore.service.http import refuse_repeated, refuse_unknown
from mqstore.wire.base import INT32_MAX
from mqstore.wire.parameters import Parameters

SHARD: Final = "shard"
Responses = dict[int | str, dict[str, Any]]
_NUMBER: Final = TypeAdapter(Annotated[int, Field(ge=0, le=INT32_MAX)])


async def _allow(request: Request) -> None:
    """Let a request pass, as a route without ``guard`` does."""


def _accept(request: Request) -> None:
    """Accept any request, as a route without ``guard`` does."""


async def wait_for_nothing() -> None:
    """Return: what a request has done lasts already."""


class ColdRoute(APIRoute):
    """A route whose token, query parameters and ``check`` come before its handler's parameters."""

    authenticate: Callable[[Request], None] = staticmethod(_accept)
    check: Callable[[Request], Awaitable[None]] = staticmethod(_allow)
    documented: Callable[[], Responses] = dict
    """Makes the OpenAPI responses that only this route has."""
    settle: Callable[[], Awaitable[None]] = staticmethod(wait_for_nothing)
    """Called behind the handler: returns once what it has done lasts."""
    takes_shard = False

    def guard(
        self,
        authenticate: Callable[[Request], None],
        check: Callable[[Request], Awaitable[None]],
        documented: Callable[[], Responses],
        *,
        takes_shard: bool,
    ) -> None:
        """Call ``authenticate`` before anything else, and ``check`` before the handler. With
        ``takes_shard`` there is ``?shard=``."""
        self.authenticate = authenticate
        self.check = check
        self.documented = documented
        self.takes_shard = takes_shard
        if takes_shard:
            self.openapi_extra = {"parameters": [_shard_parameter()]}

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return FastAPI's handler behind the checks."""
        handle = super().get_route_handler()

        async def checked(request: Request) -> Response:
            self.authenticate(request)
            self._check_parameters(request)
            await self.check(request)
            if self.body_field is not None:
                bodies.require_distinct(await request.body())
            response = await handle(request)
            await self.settle()
            return response

        return checked

    def _check_parameters(self, request: Request) -> None:
        """Raise Problem (400) for an unknown or repeated parameter: it would have no effect."""
        given = [name for name, _ in request.query_params.multi_items()]
        if given:
            known = [*_query_names(self.dependant), *([SHARD] if self.takes_shard else [])]
            refuse_unknown(given, known)
            refuse_repeated(given)


def requested_shard(request: Request) -> int | None:
    """Return the number of ``?shard=``. Raises RequestValidationError."""
    given = request.query_params.get(SHARD)
    if given is None:
        return None
    try:
        return _NUMBER.validate_python(given)
    except ValidationError as error:
        items = [{**each, "loc": ("query", SHARD)} for each in error.errors(include_url=False)]
        raise RequestValidationError(items) from None


def _query_names(dependant: Dependant) -> Iterator[str]:
    """Yield the names of a route's query parameters, those of its dependencies included."""
    for field in dependant.query_params:
        model = field.field_info.annotation
        if isclass(model) and issubclass(model, Parameters):
            yield from bodies.parameter_names(model)
        else:
            yield field.alias
    for each in dependant.dependencies:
        yield from _query_names(each)


def _shard_parameter() -> dict[str, Any]:
    text = "The shard that replies, where there are several."
    number = {"type": "integer", "maximum": INT32_MAX, "minimum": 0}
    return {
        "name": SHARD,
        "in": "query",
        "required": False,
        "schema": {
            "anyOf": [number, {"type": "null"}],
            "description": text,
            "title": "Shard",
        },
        "description": text,
    }
