"""Leased messages in JSON: those of the model, with their leases."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from mqstore.service.message_bodies import BodyForm
from mqstore.storage.codec import record
from mqstore.storage.errors import RecordError
from mqstore.storage.shared_groups import Delivered, DeliveredBatch, Received
from mqstore.writer.consumers.leased_messages import LeasedMessages
from tests.unit.service import message_model
from tests.unit.service.stored import stored
from tests.unit.storage.record_examples import encoded_records

EXPIRES_MS = 1_700_000_000_000
MESSAGES = LeasedMessages(3)


def check(batches: list[DeliveredBatch]) -> None:
    found = Received(batches=batches, expired=3, is_full=True)
    expected = {
        "group": "g",
        "messages": [_model(each) for each in found.messages],
        "unreadable": [],
        "expired": 3,
        "dead": 0,
        "full": True,
    }
    assert MESSAGES.encode("g", found, EXPIRES_MS) == msgspec.json.encode(expected)


def _model(found: Delivered) -> dict[str, Any]:
    return {
        **message_model.message(found.record, 3, BodyForm()),
        "receipt": found.receipt,
        "deliveryAttempt": found.attempt,
        "sourceTopic": found.source_topic,
        "leaseExpires": EXPIRES_MS,
    }


@given(
    st.lists(
        st.tuples(
            encoded_records(),
            st.integers(1, 2**31),
            st.integers(0, 36**6 - 1),
            st.integers(1, 2**63 - 1),
            st.sampled_from(["T", "\u00e9%|x"]),
        ),
        max_size=4,
    )
)
def test_any_records_are_encoded_alike(drawn: list[tuple[bytes, int, int, int, str]]) -> None:
    batches = []
    for raw, attempts, number, lease, topic in drawn:
        try:
            decoded = record.decode(raw, 0, len(raw), physical_offset=0)
        except RecordError:
            continue
        batches.append(DeliveredBatch(number, topic, number, lease, [decoded], [attempts], topic))
    check(batches)


@given(st.lists(st.lists(st.text(max_size=40), max_size=5), max_size=3))
def test_batches_of_plain_messages_are_encoded_alike(drawn: list[list[str]]) -> None:
    batches = []
    for number, bodies in enumerate(drawn):
        records = [stored(each.encode(errors="replace")) for each in bodies]
        attempts = list(range(len(records)))
        batches.append(DeliveredBatch(0, "T", number, 2**62, records, attempts, "U"))
    check(batches)


def test_messages_that_the_kernel_encodes_are_no_objects() -> None:
    batch = DeliveredBatch(0, "T", 1, 7, [stored(b"a"), stored(b"b")], [1, 2], "T")
    found = _NoMessages(batches=[batch])
    reply = msgspec.json.decode(MESSAGES.encode("g", found, EXPIRES_MS))
    assert [each["receipt"] for each in reply["messages"]] == ["0.1.0.7.T"] * 2
    assert [each["deliveryAttempt"] for each in reply["messages"]] == [1, 2]


class _NoMessages(Received):
    @property
    def messages(self) -> list[Delivered]:
        raise AssertionError("each message would be an object")
