"""The modules whose functions and classes make the methods of the clients.

``lazy.topic_calls`` stands for the module ``topic_calls``, which is imported when one of its names
is needed: a command of the command line uses few methods, and would otherwise import the models of
every request and reply.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from mqstore.client import (
        backup_calls,
        consumer_calls,
        consumers,
        events,
        group_calls,
        lag_calls,
        lookup_calls,
        ordered,
        produce_calls,
        producers,
        rebuild_calls,
        retention_calls,
        store_calls,
        topic_calls,
        transaction_calls,
        transactional,
    )

__all__ = [
    "backup_calls",
    "consumer_calls",
    "consumers",
    "events",
    "group_calls",
    "lag_calls",
    "lookup_calls",
    "made_at_first_use",
    "ordered",
    "produce_calls",
    "producers",
    "rebuild_calls",
    "resolve",
    "retention_calls",
    "store_calls",
    "topic_calls",
    "transaction_calls",
    "transactional",
]

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class _Reference:
    """A name in a module that may not be imported yet."""

    module: str
    name: str


class _LazyModule:
    """A module whose attributes are references."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> _Reference:
        return _Reference(self._name, name)


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _LazyModule(f"{__package__}.{name}")


def resolve(value: Value) -> Value:
    """Return the value of a reference, whose module is imported; return another value unchanged."""
    if isinstance(value, _Reference):
        found: Value = getattr(import_module(value.module), value.name)
        return found
    return value


class _LazyMethod:
    """A descriptor that a method replaces at its first use."""

    def __init__(self, make: Callable[[], object]) -> None:
        self._make = make

    def __set_name__(self, owner: type, name: str) -> None:
        self._owner, self._name = owner, name

    def __get__(self, instance: object, owner: type) -> Any:
        setattr(self._owner, self._name, self._make())
        return getattr(owner if instance is None else instance, self._name)


def made_at_first_use(make: Callable[[], object]) -> Any:
    """Return a method of a class that ``make`` returns at its first use.

    Thread-safe: two threads that use it first make it twice, with the same effect.
    """
    return _LazyMethod(make)
