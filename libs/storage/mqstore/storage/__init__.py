"""A RocketMQ message store: the files and nothing else. This package is all that others import.

::

    from mqstore.storage import MessageStore, StoreConfig
    from mqstore.storage.host import production_seams

    store = MessageStore.open(directory, StoreConfig(), production_seams())

``__all__`` names the whole public face: the classes below, and one module for each subject, whose
own ``__all__`` names what it offers. Every other module is internal: a contract of import-linter
(pyproject.toml) refuses its import from outside. The classes are imported at first use, so that a
Spark worker that needs ``formats`` does not load the engine.
"""

from __future__ import annotations

from importlib import import_module
from typing import Final

__all__ = [
    "Durability",
    "MessageStore",
    "StoreConfig",
    "StoreOptions",
    "StoreReader",
    "admin",
    "backup",
    "directory",
    "errors",
    "exchanges",
    "filter",
    "formats",
    "host",
    "index",
    "puts",
    "reads",
    "rebuild",
    "repair",
    "replication",
    "retention",
    "settings",
    "shared_groups",
    "status",
    "topic_names",
    "transactions",
    "verify",
]

_CLASSES: Final = {
    "Durability": "options",
    "MessageStore": "message_store",
    "StoreConfig": "config",
    "StoreOptions": "options",
    "StoreReader": "store_reader",
}
"""Which module defines each class of the face."""


def __getattr__(name: str) -> object:
    """A class of the face, imported at its first use."""
    if name not in _CLASSES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(import_module(f"{__name__}.{_CLASSES[name]}"), name)
    globals()[name] = found
    return found
