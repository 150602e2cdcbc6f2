"""A request as a value: where it goes, and what its reply becomes. Nothing here does input or
output."""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from pydantic import BaseModel

from mqstore.client.models import Download
from mqstore.wire.operation import Operation, Target

Answer = TypeVar("Answer", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Call(Generic[Answer]):
    """One request. ``wait_s`` is how long the service may take on purpose."""

    target: Target
    method: str
    path: str
    answer: type[Answer]
    params: Mapping[str, Any] = field(default_factory=dict)
    json: Mapping[str, Any] | None = None
    content: bytes | Iterable[bytes] | AsyncIterable[bytes] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    wait_s: float = 0.0
    errors_are_answers: bool = False
    patience_s: float = 0.0
    """How long it is sent again by itself."""
    with_keys: Callable[[int | None], Call[Answer]] | None = None
    """Makes the call with newly generated unique keys that name a shard; None: it needs none."""


def call(
    operation: Operation[Answer], *, at: Mapping[str, str | int] | None = None, **options: Any
) -> Call[Answer]:
    """A request of an operation: ``at`` are the parameters of its path, ``options`` the other
    fields of ``Call``."""
    return _call(operation, operation.reply, at, options)


def download(
    operation: Operation[Any], *, at: Mapping[str, str | int] | None = None, **options: Any
) -> Call[Download]:
    """As ``call``, of an operation whose reply is bytes."""
    return _call(operation, Download, at, options)


def _call(
    operation: Operation[Any],
    answer: type[Answer],
    at: Mapping[str, str | int] | None,
    options: Mapping[str, Any],
) -> Call[Answer]:
    path = operation.path_for(**(at or {}))
    return Call(operation.targets[0], operation.method, path, answer, **options)


def document(operation: Operation[Any], **fields: Any) -> dict[str, Any]:
    """A request in JSON, of fields of its model without those that are None; the service checks
    their values."""
    assert operation.request is not None
    known = operation.request.model_fields
    return {known[name].alias or name: each for name, each in fields.items() if each is not None}


def given(**params: Any) -> dict[str, Any]:
    """Without those that are None."""
    return {name: value for name, value in params.items() if value is not None}
