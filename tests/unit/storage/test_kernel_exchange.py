"""Requests under a repeated head, their replies, and counts of values, beside plain Python."""

from __future__ import annotations

from bisect import bisect_left

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.storage.exchanges import Exchange, RepeatedHead, RequestIds, ValueCounts

BOUNDS = (1.0, 2.0, 5.0)
HEADS = st.sampled_from(
    [
        (b"POST / HTTP/1.1\r\ncontent-length: ", b"\r\n\r\n"),
        (b"POST / HTTP/1.1\r\ncontent-length: ", b"\r\nhost: 1\r\n\r\n"),
        (b"", b"\r"),
    ]
)


def body_of(before: bytes, after: bytes, data: bytes) -> bytes | None:
    """As ``RepeatedHead.body_of``."""
    rest = data[len(before) :]
    digits = rest[: len(rest) - len(rest.lstrip(b"0123456789"))][:9]
    head = before + digits + after
    if not digits or not data.startswith(head) or len(data) != len(head) + int(digits):
        return None
    return data[len(head) :]


@st.composite
def requests(draw: st.DrawFn) -> tuple[bytes, bytes, bytes]:
    before, after = draw(HEADS)
    body = draw(st.binary(max_size=12))
    lengths = st.sampled_from([b"", b"0", b"-1", b"+1", b" 1", b"1 ", b"999999999", b"0" * 9])
    length = draw(st.just(b"%d" % len(body)) | st.just(b"%09d" % len(body)) | lengths)
    data = before + length + after + body
    cut = draw(st.sampled_from([len(data), len(data) - 1, len(before), 0]))
    changed = draw(st.integers(0, len(data) - 1) | st.none())
    if changed is not None:
        data = data[:changed] + draw(st.sampled_from([b"1", b"x", b"\r"])) + data[changed + 1 :]
    return before, after, data[:cut]


@given(requests())
def test_a_body_is_found_in_a_whole_request_under_its_head_only(
    request: tuple[bytes, bytes, bytes],
) -> None:
    before, after, data = request
    assert RepeatedHead(before, after).body_of(data) == body_of(before, after, data)


def test_a_length_of_more_digits_is_not_read() -> None:
    head = RepeatedHead(b"a", b"b")
    assert head.body_of(b"a000000001bx") == b"x"
    assert head.body_of(b"a0000000001bx") is None


def exchange(begin, **changes) -> Exchange[object]:  # type: ignore[no-untyped-def]  # any functions
    named = {
        "later": lambda *given: given,
        "encode_start": lambda fields: b"START %d\r\n" % len(fields),
        "note_id": lambda _: None,
        "ids": RequestIds("p"),
        "given_id": None,
        "count": ValueCounts(BOUNDS),
    }
    return Exchange(begin, **{**named, **changes})


@given(st.binary(max_size=300), st.text(st.characters(codec="ascii"), min_size=1, max_size=20))
def test_a_reply_has_its_head_its_length_and_the_id(body: bytes, request_id: str) -> None:
    counts = ValueCounts(BOUNDS)
    seen: list[str] = []
    one = exchange(lambda body, _: body, note_id=seen.append, given_id=request_id, count=counts)
    head = b"START 1\r\ncontent-length: %d\r\nx-request-id: %b\r\n\r\n"
    assert one.reply(body, {}, ("a",)) == head % (len(body), request_id.encode()) + body
    assert (seen, counts.counts) == ([request_id], [1, 0, 0, 0])


def test_ids_count_up_and_the_start_follows_the_fields() -> None:
    one = exchange(lambda body, _: body)
    first, second = one.reply(b"", {}, ["a"]), one.reply(b"", {}, ["a", "b"])
    assert first == b"START 1\r\ncontent-length: 0\r\nx-request-id: p-1\r\n\r\n"
    assert second == b"START 2\r\ncontent-length: 0\r\nx-request-id: p-2\r\n\r\n"


def test_what_is_no_body_is_built_later_and_not_counted() -> None:
    counts = ValueCounts(BOUNDS)
    one = exchange(lambda body, _: {b"none": None, b"a": 7}[body], count=counts)
    assert one.reply(b"none", {}, ()) is None
    found = one.reply(b"a", {}, ("field",))
    assert found[:4] == (7, 1, ("field",), "p-2")  # type: ignore[index]  # of ``later``
    assert sum(counts.counts) == 0


def test_an_error_of_the_handler_is_raised() -> None:
    one = exchange(lambda body, _: body[0])
    with pytest.raises(IndexError):
        one.reply(b"", {}, ())


@given(st.lists(st.floats(-1, 10)))
def test_values_are_counted_by_bound(values: list[float]) -> None:
    found, expected = ValueCounts(BOUNDS), [0] * 4
    for value in values:
        found.observe(value)
        expected[bisect_left(BOUNDS, value)] += 1
    assert found.counts == expected
    assert found.total == pytest.approx(sum(values))


def test_bounds_are_few_and_equal_ones_add_up() -> None:
    with pytest.raises(ValueError, match="33 bounds"):
        ValueCounts((0.0,) * 33)
    with pytest.raises(ValueError, match="other bounds"):
        ValueCounts(BOUNDS).add(ValueCounts((1.0,)))
