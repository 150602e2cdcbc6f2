"""How ``mqstore group lag`` names where the offsets come from."""

from __future__ import annotations

import pytest

from mqstore.cli.lag import source_text
from mqstore.wire.lags import OffsetsSource


@pytest.mark.parametrize(
    ("source", "age_ms", "writer", "expected"),
    [
        ("writer", 0, "alive", "offsets of store-writer, as of now"),
        ("file", 5_000, "down", "offsets of the saved file, 5s old; store-writer (down) did not"),
        ("file", 5_000, "alive", "offsets of the saved file, 5s old; store-writer (alive) did not"),
        ("backup", None, "down", "offsets of the backup of a damaged file; store-writer (down)"),
        ("none", None, "alive", "store-writer (alive) did not reply, and there is no file"),
    ],
)
def test_each_source_is_named(source: str, age_ms: int | None, writer: str, expected: str) -> None:
    found = OffsetsSource(source=source, saved_at=None, age_ms=age_ms, writer=writer)
    assert source_text(found).startswith(expected)
