"""The operations of the REST API, one module per subject.

Services attach a handler to each; the client builds its requests from them.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from mqstore.wire.operation import Operation


def all_operations() -> list[Operation[Any]]:
    """Return every operation of every service."""
    modules = [import_module(f"{__name__}.{each.name}") for each in iter_modules(__path__)]
    return [
        value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, Operation)
    ]
