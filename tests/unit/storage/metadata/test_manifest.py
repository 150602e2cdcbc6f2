from __future__ import annotations

from pathlib import Path

import pytest

from mqstore.storage.metadata import manifest
from tests.unit.storage.stores import FILES


@pytest.mark.parametrize("end", [100, 70_000, 131_072, 131_080, 140_000])
def test_the_tail_is_the_last_bytes_that_are_not_zero(end: int) -> None:
    size = 65_536
    whole = bytes(range(1, 256)) * 600
    log = whole[:end].ljust(3 * size, b"\0")
    files = [(base, memoryview(log)[base : base + size]) for base in range(0, 3 * size, size)]
    tail = manifest.tail_of(files, end)
    assert tail is not None
    assert tail.end == end
    assert 0 < tail.length <= manifest.TAIL_SIZE


@pytest.mark.parametrize("text", ["", "{", "null", '{"magic": "other"}'])
def test_an_unreadable_manifest_is_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "clean-close.json"
    assert manifest.load(FILES, path) is None
    path.write_text(text)
    assert manifest.load(FILES, path) is None
