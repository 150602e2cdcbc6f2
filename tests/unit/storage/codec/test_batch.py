"""RocketMQ's batch encoding, read and written."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.storage.codec.batch import check_encoding, encode_batch
from mqstore.storage.codec.hosts import Host
from mqstore.storage.codec.record import Message
from mqstore.storage.errors import MessageInvalid, PutRefused
from tests.unit.storage.sends import decode_batch

HOST = Host.parse("127.0.0.1", 10911)
TEMPLATE = Message("topic", 3, None, b"", HOST, HOST, 1_700_000_000_000, sys_flag=0x2)

MESSAGES = st.builds(
    lambda flag, body, properties: TEMPLATE.replace(flag=flag, body=body, properties=properties),
    st.integers(-(2**31), 2**31 - 1),
    st.binary(max_size=40),
    st.binary(max_size=40),
)


def item(body: bytes = b"body", properties: bytes = b"TAGS\x01a", **changes: int) -> bytes:
    """As MessageDecoder.encodeMessage: total, magic, crc, flag, body, properties."""
    total = changes.get("total", 22 + len(body) + len(properties))
    body_length = changes.get("body_length", len(body))
    properties_length = changes.get("properties_length", len(properties))
    head = struct.pack(">iiiii", total, 0, 0, 5, body_length)
    return head + body + struct.pack(">h", properties_length) + properties


@given(st.lists(MESSAGES, min_size=1, max_size=5))
def test_what_was_encoded_is_decoded(messages: list[Message]) -> None:
    data = encode_batch(messages)
    check_encoding(data)
    assert decode_batch(data, TEMPLATE) == messages


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "empty"),
        (item()[:19], "at byte 0: head"),
        (item() + item()[:25], "at byte 56: properties length"),
        (item(body_length=-1), "body has the negative length"),
        (item(body_length=2**31 - 1), "body of 2147483647 bytes"),
        (item(properties_length=-1), "properties has the negative length"),
        (item(properties_length=32767), "properties of 32767 bytes"),
        (item(total=31), "total size is 31"),
        (item() + b"\0", "at byte 32: head"),
    ],
)
def test_a_broken_encoding_is_named_with_its_place(data: bytes, why: str) -> None:
    with pytest.raises(MessageInvalid, match=why):
        check_encoding(data)


@given(st.binary(max_size=200))
def test_hostile_bytes_are_refused_or_decoded_never_worse(data: bytes) -> None:
    try:
        check_encoding(data)
    except PutRefused:
        return
    assert len(encode_batch(decode_batch(data, TEMPLATE))) == len(data)
