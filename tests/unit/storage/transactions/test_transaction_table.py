"""The copies of a half message stay in order, at a cost that their number does not square."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from mqstore.storage.transactions.halves import Half, digest_body
from mqstore.storage.transactions.table import COPIES_USUAL, Part

HALF = Half("k", "k", 1, "g", "T", 0, 0, 0, 0, None, 0, 0, 100, digest_body(b""))


@given(st.lists(st.integers(0, 200), min_size=1))
def test_copies_ascend_each_once(offsets: list[int]) -> None:
    part = Part((replace(HALF, queue_offset=offsets[0]),))
    for each in offsets[1:]:
        part.add(replace(HALF, queue_offset=each))
    assert [each.queue_offset for each in part.copies] == sorted(set(offsets))
    assert part.newest.queue_offset == max(offsets)


def test_very_many_copies_are_appended_to_one_list() -> None:
    """Each copy was sorted in, and the tuple made again."""
    part = Part((HALF,))
    for each in range(1, COPIES_USUAL):
        part.add(replace(HALF, queue_offset=each))
    assert isinstance(part.copies, tuple), "the garbage collector need not examine it"
    part.add(replace(HALF, queue_offset=COPIES_USUAL))
    copies = part.copies
    for each in range(COPIES_USUAL + 1, 10_000):
        part.add(replace(HALF, queue_offset=each))
    assert part.copies is copies
    assert len(copies) == 10_000
