"""The FastAPI application that every service has: errors, health, metrics and API pages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Annotated, Any, Final

import msgspec
from fastapi import FastAPI, Request, Response
from fastapi import Path as PathParameter
from fastapi.exceptions import RequestValidationError
from fastapi_offline import FastAPIOffline
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse, RedirectResponse
from starlette.routing import Match
from starlette.types import Scope

from mqstore.service import api_page, bodies, logs, problems
from mqstore.service.auth import Authenticator
from mqstore.service.cold_routes import ColdRoute, Responses, requested_shard, wait_for_nothing
from mqstore.service.documents import Document
from mqstore.service.forwarding import RelayedResponse
from mqstore.service.health import Health
from mqstore.service.http import (
    PROBLEM,
    Front,
    HotRoute,
    internal_problem,
    problem_of,
    problem_of_system,
)
from mqstore.service.limits import SAFE_METHODS, Limits
from mqstore.service.metrics import HttpMetrics, RocketmqNames
from mqstore.service.problems import Problem, ProblemType
from mqstore.service.settings import Settings
from mqstore.service.shards import Shards
from mqstore.storage.errors import StorageError
from mqstore.wire.operation import GROUP_SCHEMA, NEW_TOPIC_SCHEMA, TOPIC_SCHEMA, Role
from mqstore.wire.parameters import EXAMPLES

VERSION: Final = "0.1.0"
TopicName = Annotated[
    str,
    PathParameter(
        description="Topic, light queue, or retry topic of POP consumers.",
        openapi_examples={"a topic": {"value": "orders"}},
        json_schema_extra={**TOPIC_SCHEMA},  # not checked
    ),
]
NewTopicName = Annotated[
    str,
    PathParameter(
        description="Topic: at most 127 characters (255 for retry and dead-letter topics in a "
        "store of format 5.x).",
        openapi_examples={"a topic": {"value": "orders"}},
        json_schema_extra={**NEW_TOPIC_SCHEMA},  # not checked
    ),
]
GroupName = Annotated[
    str,
    PathParameter(
        description="Consumer group: at most 120 characters.",
        openapi_examples={"a group": {"value": "billing"}},
        json_schema_extra={**GROUP_SCHEMA},  # not checked
    ),
]
METRICS_INTERVAL_S: Final = 1.0
METRICS_BURST: Final = 20
"""Renderings of /metrics, which take some 35 ms of CPU: one a second, or so many at once."""
BEARER: Final = "bearer"
_SCHEMA_REF = "#/components/schemas/{name}"
_MODEL_REF = "#/components/schemas/{model}"


class Api:
    """The HTTP interface of one service: FastAPI routes, hot routes, OpenAPI schemas."""

    def __init__(
        self,
        settings: Settings,
        health: Health,
        *,
        title: str,
        description: str,
        tags: Mapping[str, str],
        shards: Shards | None = None,
    ) -> None:
        """``tags`` are the groups of the API page, in order, with their descriptions. With
        ``shards`` every route that needs a role takes ``?shard=``, and that shard replies.
        """
        self.settings = settings
        self.health = health
        self.shards = shards
        if shards is not None:
            health.shards = lambda: list(shards.members.entries)
        self.limits = Limits.of(settings)
        self.metrics = HttpMetrics(self.limits, RocketmqNames(settings))
        self.auth = Authenticator(settings.tokens)
        self.app: FastAPI = FastAPIOffline(
            docs_url=None,
            redoc_url=None,
            redirect_slashes=False,
            generate_unique_id_function=lambda route: route.name,
            title=title,
            version=VERSION,
            openapi_tags=[
                {"name": name, "description": text}
                for name, text in {**tags, **_OPERATIONS}.items()
            ],
            description=description + _ERRORS_TEXT,
            responses=problems.responses(*problems.ANY_ROUTE),
            separate_input_output_schemas=False,
        )
        self.app.router.route_class = ColdRoute
        self.await_condition: Callable[[Scope], Awaitable[None]] | None = None
        """Waits for the condition of a request (``read_conditions``). Set it before ``front``."""
        self._check_change: Callable[[], None] = lambda: None
        self._settle_change: Callable[[], Awaitable[None]] = wait_for_nothing
        self._change_kinds: tuple[ProblemType, ...] = ()
        self._hot: list[HotRoute] = []
        self._models: list[type[msgspec.Struct] | type[BaseModel]] = []
        self._add_error_handlers()
        self._add_operations()
        self.app.openapi = self._openapi  # type: ignore[method-assign]  # FastAPI's documented way
        self._document = Document(lambda: msgspec.json.encode(self.app.openapi()))
        self._rendered_metrics = Document(
            self.metrics.render, interval_s=METRICS_INTERVAL_S, burst=METRICS_BURST
        )

    def add_hot(self, route: HotRoute) -> None:
        """Register a hot route. Call it before ``front``."""
        self._hot.append(route)

    def add_schemas(self, *models: type[msgspec.Struct] | type[BaseModel]) -> None:
        """Add the requests and replies of hot routes to the OpenAPI schemas."""
        self._models.extend(models)

    def guard_changes(
        self,
        check: Callable[[], None],
        settle: Callable[[], Awaitable[None]],
        kinds: tuple[ProblemType, ...],
    ) -> None:
        """Call ``check`` before each request with an unsafe method, except those of hot routes, and
        ``settle`` before its reply.

        ``check`` raises a Problem of one of ``kinds`` while changes are not allowed, ``settle``
        where a change is not known to last.
        """
        self._check_change, self._settle_change, self._change_kinds = check, settle, kinds

    def add_cold(
        self,
        path: str,
        handler: Callable[..., Any],
        *,
        role: Role | None,
        is_guarded: bool = True,
        documented: Callable[[], Responses],
        **options: Any,
    ) -> None:
        """Add a route of FastAPI: the token must allow ``role`` (None: any role), and changes be
        allowed where it ``is_guarded``.

        ``documented`` makes its OpenAPI responses; ``options`` are those of ``add_api_route``.
        """
        self.app.add_api_route(path, handler, response_model=None, **options)
        route = self.app.routes[-1]
        assert isinstance(route, ColdRoute)
        check = self._check_of(is_guarded=is_guarded)
        auth = self.auth

        def authenticate(request: Request) -> None:
            """Check that the token allows the role."""
            auth.check(request.scope["headers"], role)

        route.guard(authenticate, check, documented, takes_shard=self.shards is not None)
        if is_guarded and not SAFE_METHODS.issuperset(options.get("methods") or SAFE_METHODS):
            route.settle = lambda: self._settle_change()

    def _check_of(self, *, is_guarded: bool) -> Callable[[Request], Awaitable[None]]:
        shards = self.shards

        async def check(request: Request) -> None:
            """Check that a change is allowed; forward to another shard."""
            shard = None if shards is None else requested_shard(request)
            if shards is not None and shard is not None:
                other = shards.find_remote(shard, request.scope)
                if other is not None:
                    await shards.relay(other, request)
            if is_guarded and request.method not in SAFE_METHODS:
                self._check_change()

        return check

    def front(self) -> Front:
        """Build the ASGI application. Call it after all routes are registered."""
        return Front(
            self.app,
            self._hot,
            auth=self.auth,
            limits=self.limits,
            metrics=self.metrics,
            access_log=self.settings.access_log,
            await_condition=self.await_condition,
        )

    def _add_error_handlers(self) -> None:
        handlers: dict[Any, Callable[[Request, Any], Response]] = {
            Problem: _answer,
            RelayedResponse: lambda request, relayed: relayed.response,
            StorageError: lambda request, error: _answer(request, problem_of(error)),
            OSError: lambda request, error: _answer(request, problem_of_system(error)),
            RequestValidationError: lambda request, error: _answer(
                request, _validation(request, error)
            ),
            HTTPException: lambda request, error: _answer(
                request, _http_problem(request, error, self._methods(request))
            ),
            Exception: lambda request, _: _answer(request, internal_problem()),
        }
        for kind, handler in handlers.items():
            self.app.add_exception_handler(kind, handler)

    def _methods(self, request: Request) -> set[str]:
        """Return the methods that are offered at the request's path."""
        path = request.scope["path"]
        offered = {route.method for route in self._hot if route.pattern.fullmatch(path)}
        for route in self.app.routes:
            if route.matches(request.scope)[0] is not Match.NONE:
                offered |= getattr(route, "methods", None) or set()
        return offered | ({"HEAD"} if "GET" in offered else set())

    def _add_operations(self) -> None:
        health = self.health

        def probe(question: Callable[[], tuple[bool, dict[str, Any]]]) -> Callable[[], Any]:
            async def answer() -> Response:
                good, report = question()
                return json_response(report, 200 if good else 503)

            return answer

        for path, question, text in (
            (
                "live",
                health.is_live,
                "The process works and its recovery makes progress; 503: restart it.",
            ),
            ("ready", health.is_ready, "All requests can be served; 503 states why not."),
            (
                "serving",
                health.is_serving,
                "As ready, but 200 while only messages are refused.",
            ),
            ("startup", health.has_begun, "The start has begun; the reply states its progress."),
        ):
            self.app.add_api_route(
                f"/healthz/{path}",
                probe(question),
                methods=["GET"],
                summary=text,
                tags=["operations"],
                name=f"health_{path}",
                response_description="A JSON object with the state of the service in `status`.",
                responses={503: {"description": "The state is another one; see `status`."}},
            )
        routes = self.app.router.routes
        routes[:] = [each for each in routes if getattr(each, "path", "") != self.app.openapi_url]
        self.app.add_api_route(
            "/openapi.json", self._openapi_document, include_in_schema=False, response_model=None
        )
        self.app.add_api_route(
            "/docs", self._api_page, include_in_schema=False, response_model=None
        )
        self.app.add_api_route(
            "/", lambda: RedirectResponse("/docs"), include_in_schema=False, response_model=None
        )
        self.app.add_api_route(
            "/metrics",
            self.render_metrics,
            name="metrics",
            tags=["operations"],
            summary="Prometheus metrics",
            response_description="The metrics in Prometheus' text format.",
            response_class=PlainTextResponse,
        )

    async def _api_page(self) -> Response:
        return api_page.page(self.app.title, str(self.app.openapi_url))

    async def render_metrics(self) -> Response:
        """Return the metrics, at most a second old."""
        return Response(await self._rendered_metrics.get(), media_type=self.metrics.content_type)

    async def _openapi_document(self) -> Response:
        return Response(await self._document.get(), media_type="application/json")

    def _openapi(self) -> dict[str, Any]:
        if self.app.openapi_schema is None:
            self.app.openapi_schema = self._build_openapi()
        return self.app.openapi_schema

    def _build_openapi(self) -> dict[str, Any]:
        for each in self.app.routes:
            if isinstance(each, ColdRoute):
                each.responses |= each.documented()
        document = FastAPI.openapi(self.app)
        components = document.setdefault("components", {})
        schemas = components.setdefault("schemas", {})
        schemas["Problem"] = problems.schema()
        schemas.update(_schemas(self._models))
        for unused in ("HTTPValidationError", "ValidationError"):
            schemas.pop(unused, None)
        for route in self._hot:
            if route.operation is not None:
                operations = document["paths"].setdefault(route.template, {})
                operations[route.method.lower()] = route.operation
        _drop_validation_errors(document)
        _put_under_titles(document)
        for method, operation in _operations(document):
            for each in operation.get("parameters", ()):
                if shown := each["schema"].pop(EXAMPLES, None):
                    each["examples"] = shown
            if method.upper() not in SAFE_METHODS:
                problems.add_responses(operation["responses"], *self._change_kinds)
        if self.auth.enabled:
            components["securitySchemes"] = {BEARER: {"type": "http", "scheme": "bearer"}}
            document["security"] = [{BEARER: []}]
        return document


def json_response(value: Any, status: int = 200) -> Response:
    """Encode a value, which may hold msgspec structs, as a JSON response."""
    return Response(msgspec.json.encode(value), status, media_type="application/json")


def json_text(text: str) -> Response:
    """Return encoded JSON as a response."""
    return Response(text, media_type="application/json")


def json_content(schema: str, example: Any = None) -> dict[str, Any]:
    """Return an OpenAPI ``content`` object that refers to a schema of the document."""
    media: dict[str, Any] = {"schema": {"$ref": _SCHEMA_REF.format(name=schema)}}
    if example is not None:
        media["example"] = example
    return {"application/json": media}


def _answer(request: Request, problem: Problem) -> Response:
    request.scope[PROBLEM] = problem.kind.name
    return Response(
        problem.body(logs.request_id.get()),
        problem.kind.status,
        headers=problem.headers,
        media_type=problems.CONTENT_TYPE,
    )


def _validation(request: Request, error: RequestValidationError) -> Problem:
    """Return the problem of an invalid request: 400 for its address, 415 or 422 for its body."""
    items = error.errors()
    if any(item["type"] == "json_invalid" for item in items):
        return bodies.body_problem(items)
    if not any(item["loc"][:1] == ("body",) for item in items):
        return Problem(problems.BAD_PARAMETER, bodies.describe_errors(items))
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if not bodies.is_json(media_type):
        return bodies.not_json_problem()
    return bodies.body_problem(items)


def _http_problem(request: Request, error: HTTPException, offered: set[str]) -> Problem:
    """Return the problem of a request that FastAPI or Starlette rejected."""
    path = request.scope["path"][:200]
    if error.status_code == 405 or (error.status_code == 404 and offered):
        allowed = ", ".join(sorted(offered)) or "GET, HEAD"  # static files of the API page
        detail = f"{request.method[:20]} is not offered at {path}; use {allowed}"
        return Problem(problems.METHOD_NOT_ALLOWED, detail, headers={"allow": allowed})
    texts = {
        404: (problems.NOT_FOUND, f"no such path: {path}; /docs lists the paths"),
        400: (problems.BAD_JSON, "the body cannot be read; send JSON in UTF-8"),
    }
    kind, detail = texts.get(error.status_code, (problems.INTERNAL, str(error.detail)))
    return Problem(kind, detail)


def _operations(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the method and the operation object of each operation in an OpenAPI document."""
    for operations in document["paths"].values():
        yield from operations.items()


def _schemas(models: Iterable[type[msgspec.Struct] | type[BaseModel]]) -> dict[str, Any]:
    structs = [each for each in models if issubclass(each, msgspec.Struct)]
    others = [each for each in models if issubclass(each, BaseModel)]
    _, of_structs = msgspec.json.schema_components(structs, ref_template=_SCHEMA_REF)
    _, of_models = models_json_schema(
        [(each, "serialization") for each in others], ref_template=_MODEL_REF
    )
    found: dict[str, Any] = of_structs | of_models.get("$defs", {})
    return found


def _put_under_titles(document: dict[str, Any]) -> None:
    """Rename each schema to its title, which may differ from the name of its model."""
    schemas = document["components"]["schemas"]
    titles = {name: each.get("title", name) for name, each in schemas.items()}
    references = {
        _SCHEMA_REF.format(name=name): _SCHEMA_REF.format(name=title)
        for name, title in titles.items()
    }
    document["components"]["schemas"] = {titles[name]: each for name, each in schemas.items()}

    def rename(value: Any) -> None:
        if isinstance(value, dict):
            if value.get("$ref") in references:
                value["$ref"] = references[value["$ref"]]
            for each in value.values():
                rename(each)
        elif isinstance(value, list):
            for each in value:
                rename(each)

    rename(document)


def _drop_validation_errors(document: dict[str, Any]) -> None:
    """Remove FastAPI's documentation of its 422 response: services reply with problems."""
    for _, operation in _operations(document):
        responses = operation.get("responses", {})
        if "application/json" in responses.get("422", {}).get("content", {}):
            del responses["422"]


_OPERATIONS: Final = {"operations": "Health and metrics, for operators."}
_ERRORS_TEXT: Final = """

**Errors** are [RFC 9457](https://www.rfc-editor.org/rfc/rfc9457) problem details \
(`application/problem+json`); `type` is stable, `detail` says what was wrong, and `requestId` is \
also in `X-Request-Id` and in the service's log. Integers, of up to 64 bits, are JSON numbers; \
`Accept: application/json; integers=string` gets all integers of a reply as strings. \
Where tokens are configured, send `Authorization: Bearer TOKEN`.
"""
