"""Pages of lists that are sorted by name: their parameters and their cursors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Final, TypeVar

from fastapi import Query

from mqstore.storage.formats import decode_name_cursor, encode_name_cursor
from mqstore.wire.limits import COUNT_MAX

CURSOR_LENGTH_MAX: Final = 1_000
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PageQuery:
    """The page of a list that a request wants."""

    limit: int
    cursor: str | None

    def after(self, scope: str) -> str:
        """The name behind which the page begins; ``scope`` identifies the list.

        Raises CursorError for a cursor of another list.
        """
        return "" if self.cursor is None else decode_name_cursor(self.cursor, scope)


def page_query(
    limit: Annotated[
        int, Query(ge=1, le=COUNT_MAX, description="Maximum number of entries in the reply.")
    ] = COUNT_MAX,
    cursor: Annotated[
        str | None,
        Query(max_length=CURSOR_LENGTH_MAX, description="`next` of the previous reply."),
    ] = None,
) -> PageQuery:
    """Parse the page of a list; a FastAPI dependency."""
    return PageQuery(limit, cursor)


def next_cursor(names: Sequence[str], scope: str, *, is_more: bool) -> str | None:
    """The cursor behind the last of a page's names; None for the last page."""
    return encode_name_cursor(names[-1], scope) if is_more and names else None
