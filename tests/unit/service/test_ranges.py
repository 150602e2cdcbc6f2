from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.service.problems import Problem
from mqstore.service.ranges import parse_range


@pytest.mark.parametrize(
    ("header", "found"),
    [
        ("bytes=0-0", (0, 1)),
        ("bytes=2-", (2, 10)),
        ("bytes=-3", (7, 10)),
        ("bytes=-30", (0, 10)),
        ("bytes=9-100", (9, 10)),
        (" bytes=0-4 ", (0, 5)),
        (None, None),
        ("", None),
        ("bytes=-", None),
        ("bytes=5-2", None),
        ("bytes=0-1,3-4", None),
        ("items=0-1", None),
    ],
)
def test_one_range_is_read_and_anything_else_is_the_whole(
    header: str | None, found: tuple[int, int] | None
) -> None:
    assert parse_range(header, 10) == found


@pytest.mark.parametrize("header", ["bytes=10-", "bytes=10-20", "bytes=-0"])
def test_range_of_nothing_is_416_and_says_how_much_there_is(header: str) -> None:
    with pytest.raises(Problem) as caught:
        parse_range(header, 10)
    assert caught.value.kind.status == 416
    assert caught.value.headers["content-range"] == "bytes */10"


@given(st.text(max_size=30), st.integers(0, 1000))
def test_any_text_is_a_range_within_the_size_or_none(text: str, size: int) -> None:
    for header in (text, "bytes=" + text):
        try:
            found = parse_range(header, size)
        except Problem:
            continue
        assert found is None or 0 <= found[0] < found[1] <= size
