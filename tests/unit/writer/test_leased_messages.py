"""Leased messages in JSON: those that the kernel encodes are those of the general way."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from mqstore.storage.codec import record
from mqstore.storage.errors import RecordError
from mqstore.storage.shared_groups import Delivered
from mqstore.writer.consumers.leased_messages import LeasedMessages
from tests.unit.service.stored import stored
from tests.unit.storage.record_examples import encoded_records

EXPIRES_MS = 1_700_000_000_000
MESSAGES = LeasedMessages(3)


def check(found: list[Delivered]) -> None:
    general = msgspec.json.encode([MESSAGES.view(each, EXPIRES_MS) for each in found])
    assert bytes(MESSAGES.encode(found, EXPIRES_MS)) == general


@given(
    st.lists(
        st.tuples(encoded_records(), st.integers(1, 2**31), st.sampled_from(["T", "\u00e9%|x"])),
        max_size=4,
    )
)
def test_any_records_are_encoded_alike(drawn: list[tuple[bytes, int, str]]) -> None:
    found = []
    for number, (raw, attempt, topic) in enumerate(drawn):
        try:
            decoded = record.decode(raw, 0, len(raw), physical_offset=0)
        except RecordError:
            continue
        found.append(Delivered(decoded, f"0.1.{number}.zz.{topic}", attempt, topic))
    check(found)


@given(st.lists(st.text(max_size=40), max_size=5))
def test_plain_messages_are_encoded_alike(bodies: list[str]) -> None:
    bodies = [each.encode(errors="replace").decode() for each in bodies]
    check([Delivered(stored(each.encode()), "0.0.0.1.T", 2, "T") for each in bodies])
