"""Methods of both clients, each made at its first use from the function that builds its request."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from pydantic import BaseModel

from mqstore.client.lazy import made_at_first_use, resolve
from mqstore.client.requests import Call
from mqstore.client.streams import Event, Stream

if TYPE_CHECKING:
    from mqstore.client.async_client import AsyncClient
    from mqstore.client.client import Client

P = ParamSpec("P")
Answer = TypeVar("Answer", bound=BaseModel)
Method = TypeVar("Method", bound=Callable[..., Any])
Spec = TypeVar("Spec")
Worker = TypeVar("Worker")


def _describe(
    method: Method, build: Callable[..., Any], result: Callable[..., object] | None = None
) -> Method:
    """Give a method the name, docstring and signature of its call, for ``help`` and ``inspect``.

    ``result`` is the class that it returns; None: that of the call's reply.
    """
    signature = inspect.signature(build)
    this = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    reply = str(signature.return_annotation).partition("[")[2].removesuffix("]")
    if result is not None:
        reply = result.__name__
    elif not inspect.iscoroutinefunction(method) and signature.return_annotation.startswith(
        "Stream"
    ):
        reply = str(inspect.signature(method).return_annotation).replace("Event", reply, 1)
    described = signature.replace(
        parameters=[this, *signature.parameters.values()], return_annotation=reply
    )
    method.__signature__ = described  # type: ignore[attr-defined] # inspect reads it
    method.__name__, method.__doc__ = build.__name__, build.__doc__
    method.__qualname__ = build.__qualname__
    return method


def blocking(
    build: Callable[P, Call[Answer]],
) -> Callable[Concatenate[Client, P], Answer]:
    """Return the method of ``Client`` that sends a request."""

    def make() -> Any:
        found = resolve(build)

        def method(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> Answer:
            return self.send(found(*args, **kwargs))

        return _describe(method, found)

    return made_at_first_use(make)  # type: ignore[no-any-return] # a descriptor of it


def asynchronous(
    build: Callable[P, Call[Answer]],
) -> Callable[Concatenate[AsyncClient, P], Awaitable[Answer]]:
    """Return the method of ``AsyncClient`` that sends a request."""

    def make() -> Any:
        found = resolve(build)

        async def method(self: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> Answer:
            return await self.send(found(*args, **kwargs))

        return _describe(method, found)

    return made_at_first_use(make)  # type: ignore[no-any-return] # a descriptor of it


def working(
    build: Callable[P, Spec], worker: Callable[[Callable[[], AsyncClient], Spec], Worker]
) -> Callable[Concatenate[Client, P], Worker]:
    """Return the method of ``Client`` that makes a producer or consumer."""

    def make() -> Any:
        found, result = resolve(build), resolve(worker)

        def method(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> Worker:
            return result(self._asynchronous, found(*args, **kwargs))

        return _describe(method, found, result)

    return made_at_first_use(make)  # type: ignore[no-any-return] # a descriptor of it


def working_asynchronously(
    build: Callable[P, Spec],
    worker: Callable[[AsyncClient, Spec], Worker],
) -> Callable[Concatenate[AsyncClient, P], Worker]:
    """Return the method of ``AsyncClient`` that makes a producer or consumer."""

    def make() -> Any:
        found, result = resolve(build), resolve(worker)

        def method(self: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> Worker:
            return result(self, found(*args, **kwargs))

        return _describe(method, found, result)

    return made_at_first_use(make)  # type: ignore[no-any-return] # a descriptor of it


def streaming(
    build: Callable[P, Stream[Event]],
) -> Callable[Concatenate[Client, P], Generator[Event, None, None]]:
    """Return the method of ``Client`` that follows a stream of events."""

    def make() -> Any:
        found = resolve(build)

        def method(
            self: Client, /, *args: P.args, **kwargs: P.kwargs
        ) -> Generator[Event, None, None]:
            return self.stream(found(*args, **kwargs))

        return _describe(method, found)

    return made_at_first_use(make)  # type: ignore[no-any-return] # a descriptor of it


def streaming_asynchronously(
    build: Callable[P, Stream[Event]],
) -> Callable[Concatenate[AsyncClient, P], AsyncGenerator[Event, None]]:
    """Return the method of ``AsyncClient`` that follows a stream of events."""

    def make() -> Any:
        found = resolve(build)

        def method(
            self: AsyncClient, /, *args: P.args, **kwargs: P.kwargs
        ) -> AsyncGenerator[Event, None]:
            return self.stream(found(*args, **kwargs))

        return _describe(method, found)

    return made_at_first_use(make)  # type: ignore[no-any-return] # a descriptor of it
