"""Completion of the names of topics, groups, shards and contexts in a shell.

A completion that gets no reply within a second completes nothing: the shell waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

import typer

from mqstore.cli.access import Access, Given, find
from mqstore.cli.contexts import contexts_path, load

if TYPE_CHECKING:
    from mqstore.client import Client

TIMEOUT_S: Final = 0.5
"""Longest wait for a connection, and for a reply."""


def complete_topic(ctx: typer.Context, incomplete: str) -> list[str]:
    """The topics that begin with ``incomplete``."""
    return _names(
        ctx,
        incomplete,
        lambda client: (each.topic for page in _pages(client.topics) for each in page.topics),
    )


def complete_group(ctx: typer.Context, incomplete: str) -> list[str]:
    """The consumer groups that begin with ``incomplete``."""
    return _names(
        ctx,
        incomplete,
        lambda client: (each.group for page in _pages(client.groups) for each in page.groups),
    )


def complete_shard(ctx: typer.Context, incomplete: str) -> list[str]:
    """The shards whose number begins with ``incomplete``."""
    return _names(
        ctx, incomplete, lambda client: (str(each.shard) for each in client.store().shards)
    )


def complete_context(incomplete: str) -> list[str]:
    """The contexts that begin with ``incomplete``."""
    try:
        return [name for name in load(contexts_path()).by_name if name.startswith(incomplete)]
    except (OSError, ValueError):
        return []


def _pages(load: Callable[..., Any]) -> Iterable[Any]:
    from mqstore.client import every_page  # slow to import

    return every_page(load)


def _names(
    ctx: typer.Context, incomplete: str, names: Callable[[Client], Iterable[str]]
) -> list[str]:
    try:
        with _access(ctx.params).client() as client:
            return [name for name in names(client) if name.startswith(incomplete)]
    except Exception:  # a shell shows no error while it completes
        return []


def _access(params: dict[str, Any]) -> Access:
    names = ("writer_url", "query_url", "coordinator_url", "token", "token_file", "ca")
    given = Given(**{name: params.get(name) for name in names})
    return Access(find(given, params.get("context")), timeout_s=TIMEOUT_S)
