"""The reply of an acknowledgement is that of the contract."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from mqstore.service import message_structs
from mqstore.storage.shared_groups.receipts import Receipt
from mqstore.wire.consumers import ReceiptStatus
from mqstore.writer.consumers.routes import encode_results

RECEIPTS = st.builds(
    Receipt,
    st.integers(0, 9),
    st.from_regex(r"[%|a-zA-Z0-9_-]{1,20}", fullmatch=True),
    st.integers(0, 9),
    st.integers(0, 2**40),
    st.integers(0, 2**62),
)


@given(st.text(), st.lists(st.tuples(RECEIPTS, st.sampled_from(ReceiptStatus))))
def test_results_are_those_of_the_struct(
    group: str, results: list[tuple[Receipt, ReceiptStatus]]
) -> None:
    texts = [receipt.encode() for receipt, _ in results]
    statuses = [status for _, status in results]
    expected = message_structs.ReceiptResults(
        group=group,
        results=tuple(
            message_structs.ReceiptResult(receipt=text, status=status)
            for text, status in zip(texts, statuses, strict=True)
        ),
    )
    assert encode_results(group, texts, statuses) == msgspec.json.encode(expected)
