"""Reads lists page by page."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeVar


class Page(Protocol):
    """A reply with a part of a list."""

    @property
    def next(self) -> str | None:
        """The cursor of the next page; None on the last one."""


P = TypeVar("P", bound=Page)


def every_page(load: Callable[..., P], *args: Any, **kwargs: Any) -> Iterator[P]:
    """Yield the pages of a list: ``every_page(client.topics)``, ``every_page(client.lags)``.

    ``load`` is called with the given arguments and ``cursor``. Raises its errors.
    """
    cursor: str | None = None
    while True:
        page = load(*args, **kwargs, cursor=cursor)
        yield page
        cursor = page.next
        if cursor is None:
            return
