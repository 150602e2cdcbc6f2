"""Pages of lists that are sorted by name: their parameters and their cursors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from fastapi import Query

from mqstore.storage.formats import decode_name_cursor, encode_name_cursor
from mqstore.wire.parameters import ListParameters

Page = Annotated[ListParameters, Query()]
"""A FastAPI parameter."""


def begin_of(page: ListParameters, scope: str) -> str:
    """The name behind which a page begins; ``scope`` identifies the list.

    Raises CursorError for a cursor of another list.
    """
    return "" if page.cursor is None else decode_name_cursor(page.cursor, scope)


def next_cursor(names: Sequence[str], scope: str, *, is_more: bool) -> str | None:
    """The cursor behind the last of a page's names; None for the last page."""
    return encode_name_cursor(names[-1], scope) if is_more and names else None
