"""The modules of producers and consumers, imported at their first use: most commands need none."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mqstore.client import consumers, ordered, producers, transactional

    __all__ = ["consumers", "ordered", "producers", "transactional"]


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"{__package__}.{name}")
