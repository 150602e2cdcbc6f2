from __future__ import annotations

import pytest

from mqstore.storage.layout import StoreFormat
from mqstore.storage.transactions import halves, recent
from mqstore.storage.transactions.halves import Half
from mqstore.storage.transactions.recent import RecentHalves
from mqstore.storage.transactions.records import LogRecord, NewRecord


def stored(key: str, offset: int, size: int = 10) -> tuple[Half, LogRecord]:
    message = NewRecord("T", 0, bytes(size), {"UNIQ_KEY": key}, "10.0.0.1:99", 1)
    found = LogRecord(halves.half_of(message, "group", StoreFormat.V4_9), offset, offset * 1000, 2)
    half = halves.read_half(found)
    assert half is not None
    return half, found


def test_the_newest_copy_is_kept_and_no_other() -> None:
    kept = RecentHalves()
    old, new = stored("a", 1), stored("a", 5)
    kept.keep(*old)
    assert kept.find(old[0]) is old[1]
    kept.keep(*new)
    assert (kept.find(old[0]), kept.find(new[0])) == (None, new[1])
    kept.drop([new[0]])
    assert kept.find(new[0]) is None


def test_what_is_kept_is_bounded_in_count_and_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent, "COUNT_MAX", 3)
    monkeypatch.setattr(recent, "SIZE_MAX", 4_000)
    kept = RecentHalves()
    small = [stored(f"k{number}", number) for number in range(4)]
    for each in small:
        kept.keep(*each)
    assert [kept.find(half) is not None for half, _ in small] == [False, True, True, True]
    large = stored("large", 9, size=3_000)
    kept.keep(*large)
    assert kept.find(large[0]) is large[1]
    assert all(kept.find(half) is None for half, _ in small)
    kept.clear()
    assert kept.find(large[0]) is None
