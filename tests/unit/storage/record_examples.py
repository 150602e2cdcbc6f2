"""Hypothesis strategies for messages, records and damaged logs."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable

from hypothesis import strategies as st

from mqstore.storage.codec.hosts import Host
from mqstore.storage.codec.record import Message
from mqstore.storage.layout import BODY_CRC_MASK, MAGIC_V1
from tests.unit.storage import kernel_model as model

HOST = Host(b"\x7f\0\0\1", 10911)
TIME = 1_700_000_000_000
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)

hosts = st.builds(
    Host,
    st.one_of(st.binary(min_size=4, max_size=4), st.binary(min_size=16, max_size=16)),
    st.integers(0, 65535),
)
topics = st.one_of(
    st.sampled_from(["a", "TopicTest", "%RETRY%group", "SCHEDULE_TOPIC_XXXX", "日本"]),
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=20),
)
property_names = st.sampled_from(
    ["TAGS", "KEYS", "UNIQ_KEY", "other", "INNER_MULTI_DISPATCH", "KEY", "é"]
)
property_values = st.one_of(
    st.sampled_from(["tag", "k1 k2", "  k1  ", "名 😀", "a\x01b"]),
    st.text(st.characters(codec="utf-8", exclude_characters="\x02"), min_size=1, max_size=12),
)
raw_properties = st.one_of(
    st.just(b""),
    st.lists(st.tuples(property_names, property_values), min_size=1, max_size=5).map(
        lambda pairs: "\x02".join(f"{name}\x01{value}" for name, value in pairs).encode()
    ),
    st.binary(max_size=40),
    st.lists(st.sampled_from([b"TAGS", b"KEYS", b"\x01", b"\x02", b"\xed\xa0", b"x", b" "])).map(
        b"".join
    ),
    st.integers(60, 70).map(lambda count: b"KEYS\x01" + b" ".join([b"k"] * count)),
    st.integers(500, 520).map(lambda zeros: b"a\x01b" + bytes(zeros) + b"c"),
)


def messages(
    topics: st.SearchStrategy[str] = topics,
    properties: st.SearchStrategy[bytes] = raw_properties,
) -> st.SearchStrategy[Message]:
    return st.builds(
        Message,
        topic=topics,
        queue_id=st.one_of(st.integers(0, 2), INT32),
        body=st.one_of(st.none(), st.binary(max_size=200)),
        properties=properties,
        born_host=hosts,
        store_host=hosts,
        born_timestamp_ms=INT64,
        flag=INT32,
        sys_flag=st.one_of(st.sampled_from([0, 4, 8, 12, 0x30, 0x40]), INT32),
        reconsume_times=INT32,
        prepared_transaction_offset=INT64,
    )


def plain_messages() -> st.SearchStrategy[Message]:
    """Ordinary messages for dispatch: few queues and properties, any transaction type."""
    value = st.sampled_from(["k1", "k1 k2", "a  b c", "標", "x" * 30])
    pairs = st.lists(st.tuples(st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "z"]), value))
    return st.builds(
        Message,
        topic=st.sampled_from(["a", "b", "日本"]),
        queue_id=st.integers(0, 1),
        body=st.binary(max_size=20),
        properties=pairs.map(
            lambda found: "\x02".join(f"{name}\x01{value}" for name, value in found).encode()
        ),
        born_host=st.just(HOST),
        store_host=st.just(HOST),
        born_timestamp_ms=st.just(0),
        sys_flag=st.sampled_from([0, 0, 0, 0, 4, 8, 12]),
    )


@st.composite
def encoded_records(draw: Callable[..., object]) -> bytes:
    """A record of the model's making that claims to stand at 0, some with a 5.x record CRC."""
    message = draw(messages())
    assert isinstance(message, Message)
    version = 2 if draw(st.booleans()) else 1
    if draw(st.booleans()):
        return with_record_crc(message, version)
    return model.encode(message, version, 5, 0, TIME)


def with_record_crc(message: Message, version: int) -> bytes:
    """As 5.4.0 writes it with enabledAppendPropCRC: digits least significant first."""
    message.properties += b"__CRC32#\x01" + b"0" * 10 + b"\x02"
    record = model.encode(message, version, 5, 0, TIME)
    crc = zlib.crc32(record[:-20]) & 0x7FFFFFFF
    digits = str(crc)[::-1].ljust(10, "0").encode()
    return record[:-11] + digits + b"\x02"


@st.composite
def damaged(draw: Callable[..., object], source: st.SearchStrategy[bytes]) -> bytes:
    """Bytes with some changed, now and then a field with a hostile value, maybe cut short."""
    drawn = draw(source)
    assert isinstance(drawn, bytes)
    data = bytearray(drawn)
    changes = draw(st.lists(st.tuples(st.integers(0, 2**16), st.integers(0, 255)), max_size=4))
    assert isinstance(changes, list)
    for at, value in changes:
        if data:
            data[at % len(data)] = value
    field = draw(st.sampled_from([None, None, 0, 4, 28, 36, 52, 68, 84]))
    if isinstance(field, int) and len(data) >= field + 4:
        hostile = draw(st.sampled_from([0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0xCBD43194]))
        assert isinstance(hostile, int)
        data[field : field + 4] = hostile.to_bytes(4)
    cut = draw(st.one_of(st.none(), st.integers(0, len(data))))
    return bytes(data[:cut] if isinstance(cut, int) else data)


def ordinary(topic: str = "T", queue_id: int = 0, **fields: object) -> Message:
    values: dict[str, object] = {"body": b"body", "properties": b"TAGS\x01a"}
    values.update(fields)
    return Message(
        topic=topic,
        queue_id=queue_id,
        born_host=HOST,
        store_host=HOST,
        born_timestamp_ms=TIME,
        **values,  # type: ignore[arg-type]  # test data by field name
    )


def log_of(*entries: tuple[Message, int], base: int = 0, step_ms: int = 700) -> bytes:
    """A log of the model's making: (message, queue offset), one after another."""
    data = b""
    for number, (message, queue_offset) in enumerate(entries):
        data += model.encode(message, 1, queue_offset, base + len(data), TIME + number * step_ms)
    return data


HEAD_SIZE = 88
"""Bytes before the body of a record with two IPv4 hosts."""


def nested_heads(size: int, base: int, whole: int | None = None) -> bytearray:
    """Bytes for physical offset ``base`` full of heads of records that all end where the last one
    does: the body of each holds all further heads. Only the checksum of head ``whole`` is right."""
    tail = b"\x01T\0\0"
    data = bytearray(size - len(tail)) + tail
    for number, at in enumerate(range(0, size - HEAD_SIZE - len(tail), HEAD_SIZE)):
        total = size - at
        body = total - HEAD_SIZE - len(tail)
        head = struct.pack(">IIIiiqqi", total, MAGIC_V1, 0, 0, 0, number, base + at, 0)
        head += struct.pack(
            ">q4sIq4sIiqI", TIME, HOST.address, 1, TIME, HOST.address, 1, 0, 0, body
        )
        data[at : at + HEAD_SIZE] = head
    if whole is not None:
        at = whole * HEAD_SIZE
        crc = zlib.crc32(data[at + HEAD_SIZE : -len(tail)]) & BODY_CRC_MASK
        struct.pack_into(">I", data, at + 8, crc)
    return data
