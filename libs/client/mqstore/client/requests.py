"""A request as a value: address, content and the model of its reply. Does no input or output."""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Self, TypeVar

from pydantic import BaseModel

from mqstore.client.models import Download
from mqstore.wire.operation import Operation, Target

Answer = TypeVar("Answer", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Call(Generic[Answer]):
    """One request. ``wait_s`` is added to the timeout: the service may wait so long."""

    target: Target
    method: str
    path: str
    answer: type[Answer]
    params: Mapping[str, Any] = field(default_factory=dict)
    json: Mapping[str, Any] | None = field(default=None, repr=False)
    """Not in texts: it has messages, or a secret."""
    content: bytes | Iterable[bytes] | AsyncIterable[bytes] | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict)
    wait_s: float = 0.0
    errors_are_answers: bool = False
    patience_s: float = 0.0
    """Seconds for which the client retries it, whatever the client's own ``patience_s`` is; then it
    may be repeated."""
    may_be_repeated: bool = False
    """Whether it may be sent again after an attempt that may have taken effect."""
    with_keys: Callable[[int | None], Call[Answer]] | None = None
    """Builds the call with newly generated unique keys of a shard; None: it needs no keys."""
    stored_on: Callable[[Answer], int | None] | None = None
    """Returns the shard that stored the messages of the call; None: it stores none."""


class Blocking:
    """A client whose methods return replies."""


class Asynchronous:
    """A client whose methods return awaitables of replies, as producers and consumers use it."""

    tracing: Any

    async def send(self, call: Call[Answer]) -> Answer:
        """Send a call, with retries where they are safe, and return the reply."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        raise NotImplementedError


def call(
    operation: Operation[Answer],
    *,
    at: Mapping[str, str | int] | None = None,
    params: Mapping[str, Any] | None = None,
    json: Mapping[str, Any] | None = None,
    content: bytes | Iterable[bytes] | AsyncIterable[bytes] | None = None,
    headers: Mapping[str, str] | None = None,
    wait_s: float = 0.0,
    patience_s: float = 0.0,
    with_keys: Callable[[int | None], Call[Answer]] | None = None,
    stored_on: Callable[[Answer], int | None] | None = None,
) -> Call[Answer]:
    """Build a request of an operation. ``at`` has the parameters of its path, ``params`` those of
    its query under their names in Python or in the contract; the others are fields of ``Call``."""
    return Call(
        operation.targets[0],
        operation.method,
        operation.path_for(**(at or {})),
        operation.reply,
        params=_query(operation, params or {}),
        json=json,
        content=content,
        headers=headers or {},
        wait_s=wait_s,
        patience_s=patience_s,
        may_be_repeated=operation.may_be_repeated and isinstance(content, bytes | None),
        with_keys=with_keys,
        stored_on=stored_on,
    )


def download(
    operation: Operation[Any],
    *,
    at: Mapping[str, str | int],
    params: Mapping[str, Any] | None = None,
    headers: Mapping[str, str],
) -> Call[Download]:
    """Build a request of an operation whose reply is bytes, as ``call``."""
    return Call(
        operation.targets[0],
        operation.method,
        operation.path_for(**at),
        Download,
        params=_query(operation, params or {}),
        headers=headers,
        may_be_repeated=True,
    )


def document(operation: Operation[Any], **fields: object) -> dict[str, Any]:
    """Return the JSON body of a request, without fields that are None.

    The service checks the values.
    """
    assert operation.request is not None
    known = _aliases(operation.request)
    return {known[name]: each for name, each in fields.items() if each is not None}


def given(**params: object) -> dict[str, Any]:
    """Return the parameters without those that are None."""
    return {name: value for name, value in params.items() if value is not None}


def _query(operation: Operation[Any], params: Mapping[str, Any]) -> dict[str, Any]:
    known = {} if operation.query is None else _aliases(operation.query)
    return {known.get(name, name): value for name, value in params.items()}


def _aliases(model: type[BaseModel]) -> dict[str, str]:
    return {name: each.alias or name for name, each in model.model_fields.items()}
