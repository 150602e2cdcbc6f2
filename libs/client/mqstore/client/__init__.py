"""Typed client of the mqstore REST API, blocking (``Client``) and asyncio (``AsyncClient``).

A name is imported at its first use: a command of the command line uses few of them.
"""

from __future__ import annotations

import re
from importlib import import_module
from pkgutil import get_data
from typing import Final

_NAMES: Final = (get_data(__name__, "__init__.pyi") or b"").decode()
_HOMES: Final = {
    name: module for module, name in re.findall(r"^from (\S+) import (\w+) as", _NAMES, re.M)
}
__all__ = [*_HOMES]


def __getattr__(name: str) -> object:
    """A name of ``__all__``, imported at its first use."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(import_module(_HOMES[name]), name)
    globals()[name] = found
    return found
