"""Receipts: the text names the lease, and nothing else is read as one."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mqstore.storage.errors import ReceiptInvalid
from mqstore.storage.shared_groups.receipts import Receipt, decode, decode_receipts, encoder

OFFSETS = st.integers(0, 36**12 - 1)


@given(
    st.integers(0, 36**6 - 1),
    st.from_regex(r"[%|a-zA-Z0-9_-]{1,255}", fullmatch=True),
    st.integers(0, 36**6 - 1),
    st.lists(OFFSETS, min_size=1),
    st.integers(0, 2**62),
)
@example(0, "T", 0, [0, 35, 36, 1295, 1296, 1297, 2592, 1296, 5], 1)
def test_receipts_of_one_lot_name_each_its_message(
    shard: int, topic: str, queue_id: int, offsets: list[int], lease: int
) -> None:
    encode = encoder(shard, topic, queue_id, lease)
    for offset in offsets:
        receipt = Receipt(shard, topic, queue_id, offset, lease)
        assert decode(encode(offset)) == receipt
        assert encode(offset) == receipt.encode()


@pytest.mark.parametrize(
    "text", ["", "0.0.0.1", "0.0.0.1.t.u", "A.0.0.1.t", "0.0.0.1.t ", "é.0.0.1.t"]
)
def test_other_text_is_no_receipt(text: str) -> None:
    with pytest.raises(ReceiptInvalid, match="send it as"):
        decode(text)
    with pytest.raises(ReceiptInvalid, match="send it as"):
        decode_receipts(["0.0.0.1.t", text])


_NUMBER = st.text("0123456789abcdefz", min_size=0, max_size=14)


@given(
    st.lists(
        st.one_of(
            st.tuples(_NUMBER, _NUMBER, _NUMBER, _NUMBER, st.text("aZ_-%|. é", max_size=4)).map(
                ".".join
            ),
            st.builds(
                Receipt,
                st.integers(0, 36**6 - 1),
                st.sampled_from(["T", "%RETRY%g", "a" * 255]),
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
def test_receipts_of_a_lot_are_decoded_as_one_by_one(texts: list[str]) -> None:
    def one_by_one() -> list[Receipt] | str:
        try:
            return [decode(each) for each in texts]
        except ReceiptInvalid as error:
            return str(error)

    def together() -> list[Receipt] | str:
        try:
            return decode_receipts(texts)
        except ReceiptInvalid as error:
            return str(error)

    assert together() == one_by_one()
