"""The modules of ``mqstore.wire``, imported at their first use.

``contract.topics`` is ``mqstore.wire.topics``. A command of the command line makes one request, and
would otherwise import the models of every request and reply.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mqstore.wire import (
        access,
        backup_reports,
        checks,
        consumers,
        dead_letters,
        findings,
        groups,
        key_shards,
        lags,
        members,
        messages,
        produce,
        queues,
        rebuilds,
        replication,
        retention,
        segments,
        settings,
        stores,
        topics,
        traces,
        transactions,
    )

    __all__ = [
        "access",
        "backup_reports",
        "checks",
        "consumers",
        "dead_letters",
        "findings",
        "groups",
        "key_shards",
        "lags",
        "members",
        "messages",
        "produce",
        "queues",
        "rebuilds",
        "replication",
        "retention",
        "segments",
        "settings",
        "stores",
        "topics",
        "traces",
        "transactions",
    ]


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"mqstore.wire.{name}")
