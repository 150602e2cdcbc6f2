"""RocketMQ's batch encoding, read and written."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.storage.codec.batch import decode_batch, encode_batch
from mqstore.storage.codec.hosts import Host
from mqstore.storage.codec.record import Message
from mqstore.storage.errors import MessageInvalid, PropertiesTooLong, PutRefused
from mqstore.storage.layout import StoreFormat

HOST = Host.parse("127.0.0.1", 10911)
TEMPLATE = Message("topic", 3, None, b"", HOST, HOST, 1_700_000_000_000, sys_flag=0x2)
V4, V5 = StoreFormat.V4_9, StoreFormat.V5_X

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
    assert decode_batch(encode_batch(messages), TEMPLATE, store_format=V4) == messages


def test_each_message_takes_the_rest_from_the_batch() -> None:
    (decoded,) = decode_batch(item(), TEMPLATE, store_format=V5)
    assert decoded == TEMPLATE.replace(flag=5, body=b"body", properties=b"TAGS\x01a")


@pytest.mark.parametrize(
    ("own", "joined"),
    [
        (b"TAGS\x01a", b"TAGS\x01a\x02KEYS\x01k"),
        (b"TAGS\x01a\x02", b"TAGS\x01a\x02KEYS\x01k"),
        (b"", b"KEYS\x01k"),
    ],
)
def test_batch_properties_follow_each_messages_own_in_4_9(own: bytes, joined: bytes) -> None:
    data = item(properties=own)
    (v4,) = decode_batch(data, TEMPLATE, batch_properties=b"KEYS\x01k", store_format=V4)
    (v5,) = decode_batch(data, TEMPLATE, batch_properties=b"KEYS\x01k", store_format=V5)
    assert (v4.properties, v5.properties) == (joined, own)


def test_properties_with_the_batchs_own_are_held_to_the_limit() -> None:
    data = item(properties=b"k\x01" + b"v" * 32765)
    with pytest.raises(PropertiesTooLong):
        decode_batch(data, TEMPLATE, batch_properties=b"KEYS\x01k", store_format=V4)


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
        decode_batch(data, TEMPLATE, store_format=V4)


@given(st.binary(max_size=200))
def test_hostile_bytes_are_refused_or_decoded_never_worse(data: bytes) -> None:
    try:
        messages = decode_batch(data, TEMPLATE, store_format=V4)
    except PutRefused:
        return
    assert len(encode_batch(messages)) == len(data)
