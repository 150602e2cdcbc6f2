"""Methods of the clients, each made of the function that builds what it sends.

``Client`` replies when it has the answer, ``AsyncClient`` with what is awaited.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from types import MethodType
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, cast, overload

from pydantic import BaseModel

from mqstore.client.requests import Asynchronous, Blocking, Call
from mqstore.client.streams import Event, Stream

P = ParamSpec("P")
Answer = TypeVar("Answer", bound=BaseModel)
Spec = TypeVar("Spec")
Worker = TypeVar("Worker")


class _Method:
    """A method that is made when a class first needs it: most commands need one of a hundred."""

    def __init__(self, make: Callable[[type], Callable[..., Any]]) -> None:
        self._make = make
        self._made: dict[type, Callable[..., Any]] = {}

    def __get__(self, instance: object, owner: type) -> Any:
        made = self._made.get(owner)
        if made is None:
            made = self._made[owner] = self._make(owner)
        return made if instance is None else MethodType(made, instance)


def _describe(method: Any, build: Callable[..., Any], result: str) -> Any:
    """Give a method the name, docstring and signature of what it sends, for ``help`` and
    ``inspect``."""
    signature = inspect.signature(build)
    this = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    method.__signature__ = signature.replace(
        parameters=[this, *signature.parameters.values()], return_annotation=result
    )
    method.__name__, method.__doc__ = build.__name__, build.__doc__
    method.__qualname__ = build.__qualname__
    return method


def _answer_of(build: Callable[..., Any]) -> str:
    returned: str = inspect.signature(build).return_annotation
    return returned.partition("[")[2].removesuffix("]")


class _Sends(Generic[P, Answer]):
    """The type of a method of both clients that sends a request."""

    @overload
    def __get__(self, instance: Blocking, owner: object) -> Callable[P, Answer]: ...
    @overload
    def __get__(self, instance: Asynchronous, owner: object) -> Callable[P, Awaitable[Answer]]: ...
    @overload
    def __get__(
        self, instance: None, owner: type[Blocking]
    ) -> Callable[Concatenate[Any, P], Answer]: ...
    @overload
    def __get__(
        self, instance: None, owner: type[Asynchronous]
    ) -> Callable[Concatenate[Any, P], Awaitable[Answer]]: ...
    def __get__(self, instance: Any, owner: Any) -> Any:
        raise NotImplementedError


class _Follows(Generic[P, Event]):
    """The type of a method of both clients that follows a stream of events."""

    @overload
    def __get__(
        self, instance: Blocking, owner: object
    ) -> Callable[P, Generator[Event, None, None]]: ...
    @overload
    def __get__(
        self, instance: Asynchronous, owner: object
    ) -> Callable[P, AsyncGenerator[Event, None]]: ...
    @overload
    def __get__(self, instance: None, owner: object) -> Callable[..., Any]: ...
    def __get__(self, instance: Any, owner: Any) -> Any:
        raise NotImplementedError


def sends(build: Callable[P, Call[Answer]]) -> _Sends[P, Answer]:
    """Return the method of both clients that sends a request."""

    def make(_: type) -> Callable[..., Any]:
        def method(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> Any:
            return self.send(build(*args, **kwargs))

        return cast(Callable[..., Any], _describe(method, build, _answer_of(build)))

    return cast(_Sends[P, Answer], _Method(make))


def follows(build: Callable[P, Stream[Event]]) -> _Follows[P, Event]:
    """Return the method of both clients that follows a stream of events."""

    def make(owner: Any) -> Callable[..., Any]:
        def method(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> Any:
            return self.stream(build(*args, **kwargs))

        events: str = inspect.signature(owner.stream).return_annotation
        result = events.replace("Event", _answer_of(build), 1)
        return cast(Callable[..., Any], _describe(method, build, result))

    return cast(_Follows[P, Event], _Method(make))


def working(
    load: Callable[
        [],
        tuple[Callable[P, Spec], Callable[[Callable[[], Asynchronous], Spec], Worker]],
    ],
) -> Callable[Concatenate[Any, P], Worker]:
    """Return the method of ``Client`` that makes a producer or consumer. ``load`` returns the
    function that builds what the class behind it takes."""

    def make(_: type) -> Callable[..., Any]:
        build, worker = load()

        def method(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> Worker:
            return worker(self._asynchronous, build(*args, **kwargs))

        return cast(Callable[..., Any], _describe(method, build, cast(type, worker).__name__))

    return cast(Any, _Method(make))  # type: ignore[no-any-return]


def working_async(
    load: Callable[[], tuple[Callable[P, Spec], Callable[[Asynchronous, Spec], Worker]]],
) -> Callable[Concatenate[Any, P], Worker]:
    """Return the method of ``AsyncClient`` that makes a producer or consumer, as ``working``."""

    def make(_: type) -> Callable[..., Any]:
        build, worker = load()

        def method(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> Worker:
            return worker(self, build(*args, **kwargs))

        return cast(Callable[..., Any], _describe(method, build, cast(type, worker).__name__))

    return cast(Any, _Method(make))  # type: ignore[no-any-return]
