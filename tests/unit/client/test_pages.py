"""A list is read page by page, up to the last one."""

from __future__ import annotations

from mqstore.client import Topics, every_page


def test_every_page_is_read_with_the_cursor_of_the_one_before() -> None:
    calls: list[tuple[str | None, int]] = []

    def load(*, cursor: str | None = None, limit: int) -> Topics:
        calls.append((cursor, limit))
        return Topics(topics=(), next={None: "a", "a": "b", "b": None}[cursor])

    assert [each.next for each in every_page(load, limit=7)] == ["a", "b", None]
    assert calls == [(None, 7), ("a", 7), ("b", 7)]
