"""Receipts: the text names the lease, and nothing else is read as one."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mqstore.storage.errors import ReceiptInvalid
from mqstore.storage.shared_groups.receipts import (
    QueueReceipts,
    Receipt,
    decode,
    decode_by_queue,
    decode_receipts,
    group_by_queue,
    texts_beside_offset,
)

OFFSETS = st.integers(0, 36**12 - 1)


@given(
    st.integers(0, 36**6 - 1),
    st.from_regex(r"[%|+a-zA-Z0-9_-]{1,255}", fullmatch=True),
    st.integers(0, 36**6 - 1),
    OFFSETS,
    st.integers(0, 2**62),
)
@example(0, "T", 0, 0, 1)
@example(0, "T", 0, 1296, 1)
@example(0, "%RETRY%g+T", 0, 0, 1)
def test_the_text_of_a_receipt_is_that_receipt(
    shard: int, topic: str, queue_id: int, offset: int, lease: int
) -> None:
    receipt = Receipt(shard, topic, queue_id, offset, lease)
    assert decode(receipt.encode()) == receipt
    before, behind = texts_beside_offset(shard, topic, queue_id, lease)
    assert receipt.encode().startswith(before)
    assert receipt.encode().endswith(behind)


@pytest.mark.parametrize(
    "text", ["", "0.0.0.1", "0.0.0.1.t.u", "A.0.0.1.t", "0.0.0.1.t ", "é.0.0.1.t"]
)
def test_other_text_is_no_receipt(text: str) -> None:
    with pytest.raises(ReceiptInvalid, match="send it as"):
        decode(text)
    with pytest.raises(ReceiptInvalid, match="send it as"):
        decode_by_queue(["0.0.0.1.t", text])


_NUMBER = st.text("0123456789abcdefz", min_size=0, max_size=14)


@given(
    st.lists(
        st.one_of(
            st.tuples(_NUMBER, _NUMBER, _NUMBER, _NUMBER, st.text("aZ_-%|+. é", max_size=4)).map(
                ".".join
            ),
            st.builds(
                Receipt,
                st.integers(0, 36**6 - 1),
                st.sampled_from(["T", "%RETRY%g", "%RETRY%g+T", "a" * 255]),
                st.integers(0, 36**6 - 1),
                OFFSETS,
                st.integers(0, 36**13 - 1),
            ).map(Receipt.encode),
        )
    )
)
@example(["0.0.0.zzzzzzzzzzzzz.t", "0.0.zzzzzzzzzzzz.1.t"])
@example(["0.0.0.1." + "a" * 256])
@example(["0.0.0.1.t\0"])
def test_receipts_of_a_request_are_those_of_one_by_one(texts: list[str]) -> None:
    def one_by_one() -> list[QueueReceipts] | str:
        try:
            return group_by_queue(decode_receipts(texts))
        except ReceiptInvalid as error:
            return str(error)

    def together() -> list[QueueReceipts] | str:
        try:
            return decode_by_queue(texts)
        except ReceiptInvalid as error:
            return str(error)

    assert together() == one_by_one()


@given(
    st.lists(
        st.builds(
            Receipt,
            st.integers(0, 1),
            st.sampled_from("TU"),
            st.integers(0, 1),
            st.integers(0, 5),
            st.sampled_from([1, 3, 1 << 20, 2 << 20]),
        )
    )
)
def test_grouped_receipts_are_all_there_in_their_places(given: list[Receipt]) -> None:
    found = {
        number: receipt
        for queue in group_by_queue(given)
        for number, receipt in zip(queue.numbers, queue.receipts(), strict=True)
    }
    assert [found[number] for number in range(len(given))] == given
    for queue in group_by_queue(given):
        assert {each.epoch for each in queue.receipts()} == {queue.epoch}
        ordered = queue.by_offset()
        assert ordered.offsets == sorted(queue.offsets)
        assert sorted(ordered.receipts()) == sorted(queue.receipts())
