"""Settled dead letters, compared with a plain set of offsets, and their file."""

from __future__ import annotations

from pathlib import Path

import hypothesis.strategies as st
from hypothesis import given

from mqstore.storage.metadata import settled_letters
from mqstore.storage.metadata.settled_letters import (
    NOTHING_SETTLED,
    FollowedSettled,
    Place,
    SettledLetters,
)
from mqstore.storage.system.posix_files import PosixFileSystem

FILES = PosixFileSystem()
OFFSETS = st.integers(0, 30)


@given(st.lists(st.tuples(OFFSETS, OFFSETS), max_size=8), OFFSETS)
def test_ranges_are_a_set_of_offsets(added: list[tuple[int, int]], minimum: int) -> None:
    settled, model = NOTHING_SETTLED, set[int]()
    for number, each in enumerate(added):
        settled = settled.with_ranges([each], Place(number, number), 0)
        model |= set(range(*each))
    settled = settled.with_ranges((), settled.last, minimum)

    assert {n for n in range(minimum, 31) if settled.has(n)} == {n for n in model if n >= minimum}
    assert settled.count(minimum, 31) == sum(n >= minimum for n in model)
    for offset in range(minimum, 31):
        assert settled.first_open(offset) == min(set(range(offset, 32)) - model)
    bounds = [bound for each in settled.ranges for bound in each]
    assert bounds == sorted(set(bounds)), "ranges are apart and in order"
    assert settled.last == Place(len(added) - 1, len(added) - 1)


def test_a_saved_file_is_followed(tmp_path: Path) -> None:
    path = tmp_path / "dead-letters.json"
    followed = FollowedSettled(FILES, path)
    assert followed.now() == {}
    for number in range(3):
        settled = {("%DLQ%g", 0): SettledLetters(((0, 5 + number),), Place(4, 800))}
        settled_letters.save(FILES, path, settled)
        assert followed.now() == settled


def test_a_damaged_file_settles_nothing(tmp_path: Path) -> None:
    path = tmp_path / "dead-letters.json"
    settled_letters.save(FILES, path, {("%DLQ%g", 0): SettledLetters(((3, 5),), Place(4, 800))})
    path.write_bytes(path.read_bytes().replace(b"[3,5]", b"[0,9]"))
    assert settled_letters.load(FILES, path) == {}
    path.write_text('{"queues":[{"topic":"t","queue":0,"ranges":[[5,3]],"last":[1,1]}]}')
    assert settled_letters.load(FILES, path) == {}
