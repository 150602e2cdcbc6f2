"""Records: bytes that real brokers wrote, every defect by name, and scanning."""

from __future__ import annotations

import hashlib
import tracemalloc
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.storage import _kernel
from mqstore.storage.codec import record
from mqstore.storage.codec.hosts import Host
from mqstore.storage.codec.record import Blank, Message, Record
from mqstore.storage.errors import (
    MessageInvalid,
    PropertiesTooLong,
    RecordBodyCorrupt,
    RecordCrcMismatch,
    RecordError,
    RecordHostInvalid,
    RecordLengthsDisagree,
    RecordMagicUnknown,
    RecordMisplaced,
    RecordPropertiesMalformed,
    RecordSizeWrong,
    RecordTopicInvalid,
    RecordTruncated,
    TopicTooLong,
)
from tests.unit.storage.record_examples import messages, with_record_crc

# Written by real brokers; docs/formats.md describes them.
V1_OF_4_9 = bytes.fromhex(
    "0000008adaa320a70728763d000000000000000000000000000001ab0000000000280e2f000000010000018bcf"
    "e5a21b0ac7083e00003593000001a1fe9beec47f00000100002a9f0000000000000000000000000000000de694"
    "afe4bb98e68890e58a9f200e2552455452592567726f75702d6100144b45595301686f74313702544147530141"
    "614161"
)
V1_OF_5_4 = bytes.fromhex(
    "00000094daa320a771d20434000000010000000000000000000000ab00000000002c8c32000000000000018bcf"
    "e5a5550a1581b200007e98000001a1fe9c1a5a7f00000100002a9f00000000000000000000000000000009caa1"
    "943890338ea3530b6f726465725f746f706963002570726f70300176637475657a024b455953016b65792d3774"
    "33370254414753015461674202"
)
V6_HOSTS_OF_4_9 = bytes.fromhex(
    "000000c9daa320a748d0884300000001000000000000000000000058000000000003a658000000300000018bcf"
    "e56eddfdf68534ea1e6cbe5001f255ca74912c0000c588000001a1feaaaa710000000000000000000000000000"
    "000100002a9f00000000000000000000000000000015e6b688e681af20377b226964223a306f6b0a316f660756"
    "36546f706963003a554e49515f4b45590137463030303030314535394542333944313930324135303630303030"
    "30304642025441475301c39c6ec3af63c3b864c3a9"
)


def sample(**fields: object) -> Message:
    message = Message(
        topic="TopicTest",
        queue_id=3,
        body=b"hello",
        properties=b"UNIQ_KEY\x01u1\x02KEYS\x01k1 k2\x02TAGS\x01a",
        born_host=Host.parse("10.0.0.1", 5000),
        store_host=Host.parse("127.0.0.1", 10911),
        born_timestamp_ms=1_700_000_000_000,
        flag=-7,
        reconsume_times=2,
        prepared_transaction_offset=99,
    )
    for name, value in fields.items():
        setattr(message, name, value)
    return message


def encode(message: Message, version: int = 1, offset: int = 0, queue_offset: int = 11) -> bytes:
    out = bytearray(record.size_of(message, version))
    size = record.encode_into(
        out,
        0,
        message,
        version=version,
        queue_offset=queue_offset,
        physical_offset=offset,
        store_timestamp_ms=1_700_000_000_123,
    )
    assert size == len(out)
    return bytes(out)


def decode(data: bytes | bytearray, offset: int = 0, *, verify_body: bool = True) -> Record:
    return record.decode(data, 0, len(data), physical_offset=offset, verify_body=verify_body)


def test_a_record_of_4_9_is_read_field_by_field() -> None:
    read = decode(V1_OF_4_9, 2625071)
    assert (read.size, read.version, read.queue_id, read.queue_offset) == (138, 1, 0, 427)
    assert (read.topic, read.sys_flag, read.flag) == ("%RETRY%group-a", 1, 0)
    assert str(read.born_host) == "10.199.8.62|13715"
    assert str(read.store_host) == "127.0.0.1|10911"
    assert read.body.decode() == "支付成功 "
    assert read.properties == {"KEYS": "hot17", "TAGS": "AaAa"}
    assert (read.tags, read.keys, read.uniq_key, read.tags_code) == ("AaAa", "hot17", None, 2031744)
    assert read.offset_message_id == "7F00000100002A9F0000000000280E2F"


def test_a_record_of_5_4_ends_its_properties_with_a_separator() -> None:
    read = decode(V1_OF_5_4, 2919474)
    assert read.raw_properties.endswith(b"\x02")
    assert read.properties == {"prop0": "vctuez", "KEYS": "key-7t37", "TAGS": "TagB"}


def test_hosts_of_ipv6_are_read() -> None:
    read = decode(V6_HOSTS_OF_4_9, 239192)
    assert str(read.born_host) == "fdf6:8534:ea1e:6cbe:5001:f255:ca74:912c|50568"
    assert str(read.store_host) == "0:0:0:0:0:0:0:1|10911"
    assert (read.topic, read.tags) == ("V6Topic", "Ünïcødé")
    assert len(read.offset_message_id) == 56


@pytest.mark.parametrize(
    ("data", "offset"),
    [(V1_OF_4_9, 2625071), (V1_OF_5_4, 2919474), (V6_HOSTS_OF_4_9, 239192)],
)
def test_a_real_record_is_written_again_byte_by_byte(data: bytes, offset: int) -> None:
    read = decode(data, offset)
    message = Message(
        topic=read.topic,
        queue_id=read.queue_id,
        body=read.body,
        properties=read.raw_properties,
        born_host=read.born_host,
        store_host=read.store_host,
        born_timestamp_ms=read.born_timestamp_ms,
        sys_flag=read.sys_flag,
    )
    out = bytearray(len(data))
    record.encode_into(
        out,
        0,
        message,
        version=1,
        queue_offset=read.queue_offset,
        physical_offset=offset,
        store_timestamp_ms=read.store_timestamp_ms,
    )
    assert out == data


@given(messages(properties=st.sampled_from([b"", b"a\x01b"])), st.booleans())
def test_decoding_gives_back_what_was_encoded(message: Message, long_topic: bool) -> None:
    version = 2 if long_topic else 1
    read = decode(encode(message, version, offset=2**40), 2**40)
    assert (read.version, read.physical_offset, read.queue_offset) == (version, 2**40, 11)
    assert read.body == (message.body or b"")
    assert read.body_crc == record.body_crc(message.body)
    assert read.raw_topic == message.topic.encode()
    assert read.topic == message.topic
    assert read.raw_properties == message.properties
    assert (read.born_host, read.store_host) == (message.born_host, message.store_host)
    assert read.sys_flag & ~0x30 == message.sys_flag & ~0x30
    assert bool(read.sys_flag & 0x10) == message.born_host.is_v6
    assert bool(read.sys_flag & 0x20) == message.store_host.is_v6
    for name in ("queue_id", "flag", "born_timestamp_ms", "reconsume_times"):
        assert getattr(read, name) == getattr(message, name)


def test_no_body_and_an_empty_one_are_stored_alike() -> None:
    assert encode(sample(body=None)) == encode(sample(body=b""))
    assert decode(encode(sample(body=None))).body_crc == 0


def test_no_properties_read_as_none() -> None:
    read = decode(encode(sample(properties=b"")))
    assert read.properties is None
    assert (read.tags, read.keys, read.uniq_key, read.tags_code) == (None, None, None, 0)


def test_properties_that_say_nothing_read_as_an_empty_mapping() -> None:
    assert decode(encode(sample(properties=b"a\x01"))).properties == {}


def test_a_record_without_its_body_keeps_everything_else() -> None:
    data = encode(sample())
    read = record.decode(data, 0, len(data), physical_offset=0, with_body=False)
    assert (read.body, read.size, read.tags) == (b"", len(data), "a")


def test_a_record_outlives_its_buffer() -> None:
    data = bytearray(encode(sample()))
    read = decode(data)
    data[:] = bytes(len(data))
    assert (read.body, read.topic, read.uniq_key) == (b"hello", "TopicTest", "u1")


# Where each field of ``sample`` begins.
BODY_AT = 88
TOPIC_AT = BODY_AT + 5
PROPERTIES_AT = TOPIC_AT + 1 + 9


def changed(at: int, new: bytes) -> bytes:
    data = bytearray(encode(sample()))
    data[at : at + len(new)] = new
    return bytes(data)


@pytest.mark.parametrize(
    ("data", "error", "knows_size"),
    [
        (b"", RecordTruncated, False),
        (encode(sample())[:7], RecordTruncated, False),
        (encode(sample())[:-1], RecordTruncated, False),
        (bytes(200), RecordMagicUnknown, False),
        (changed(4, b"\xda\xa3\x20\xa8"), RecordMagicUnknown, False),
        (changed(0, b"\xff\xff\xff\xff"), RecordSizeWrong, False),
        (changed(0, (90).to_bytes(4)), RecordSizeWrong, False),
        (changed(0, (100).to_bytes(4)), RecordLengthsDisagree, False),
        (changed(36, b"\0\0\0\x10"), RecordLengthsDisagree, False),
        (changed(BODY_AT - 4, b"\xff\xff\xff\xff"), RecordLengthsDisagree, False),
        (changed(BODY_AT - 4, b"\x7f\xff\xff\xff"), RecordLengthsDisagree, False),
        (changed(TOPIC_AT, b"\xff"), RecordLengthsDisagree, False),
        (changed(PROPERTIES_AT, b"\0\0"), RecordLengthsDisagree, False),
        (changed(PROPERTIES_AT, b"\xff\xff"), RecordLengthsDisagree, False),
        (changed(28, b"\0\0\0\0\0\0\0\x01"), RecordMisplaced, True),
        (changed(52, b"\0\x01\0\0"), RecordHostInvalid, True),
        (changed(68, b"\xff\xff\xff\xff"), RecordHostInvalid, True),
        (changed(TOPIC_AT + 3, b"\0"), RecordTopicInvalid, True),
        (changed(PROPERTIES_AT + 2, b"\0"), RecordPropertiesMalformed, True),
        (changed(len(encode(sample())) - 1, b"\0"), RecordPropertiesMalformed, True),
        (encode(sample(properties=b"no separator")), RecordPropertiesMalformed, True),
        (encode(sample(properties=b"a\x01" + bytes(512) + b"b")), RecordPropertiesMalformed, True),
        (changed(BODY_AT, b"J"), RecordBodyCorrupt, True),
        (changed(8, b"\0"), RecordBodyCorrupt, True),
    ],
)
def test_each_defect_has_its_error(data: bytes, error: type[RecordError], knows_size: bool) -> None:
    with pytest.raises(RecordError) as raised:
        decode(data)
    assert type(raised.value) is error
    assert raised.value.offset == 0
    assert raised.value.size == (len(data) if knows_size else 0)


def test_the_error_names_the_physical_offset() -> None:
    data = bytes(30) + encode(sample(), offset=500)
    with pytest.raises(RecordMisplaced, match="at offset 501"):
        record.decode(data, 30, len(data), physical_offset=501)
    with pytest.raises(RecordTruncated, match="at offset 30"):
        record.decode(data, 30, 40, physical_offset=record.ANY_OFFSET)


def test_a_v1_topic_over_127_bytes_cannot_be_read_though_its_lengths_add_up() -> None:
    """4.9.7 and 5.4.0 write such records and never read them again."""
    data = bytearray(encode(sample(topic="t" * 200), version=2))
    topic_at = BODY_AT + 5
    del data[topic_at]
    data[0:4] = len(data).to_bytes(4)
    data[4:8] = bytes.fromhex("daa320a7")
    with pytest.raises(RecordTopicInvalid):
        decode(data)


def test_a_nul_inside_a_value_is_kept_as_rocketmq_keeps_it() -> None:
    read = decode(encode(sample(properties=b"a\x01x\0y\x02b\x01c")))
    assert read.properties == {"a": "x\0y", "b": "c"}


def test_a_wrong_body_is_decoded_when_the_crc_is_not_verified() -> None:
    read = decode(changed(BODY_AT, b"J"), verify_body=False)
    assert read.body == b"Jello"
    assert read.body_crc != record.body_crc(read.body)


def test_the_record_crc_of_5_x_is_verified_where_there_is_one() -> None:
    data = with_record_crc(sample(), 1)
    assert decode(data).properties is not None
    damaged = bytearray(data)
    damaged[16] ^= 1
    with pytest.raises(RecordCrcMismatch):
        decode(damaged)
    decode(damaged, verify_body=False)
    damaged[16] ^= 1
    damaged[-2] = ord("x")
    with pytest.raises(RecordCrcMismatch):
        decode(damaged)


def test_any_flipped_bit_gives_a_record_of_that_size_or_a_named_error() -> None:
    whole = encode(sample())
    for flipped in range(8 * len(whole)):
        data = bytearray(whole)
        data[flipped // 8] ^= 1 << flipped % 8
        try:
            assert decode(data).size == len(data)
        except RecordError as error:
            assert error.defect in str(error)


def test_sizes_count_every_part() -> None:
    v6 = Host.parse("::1", 1)
    plain = sample(topic="t", body=None, properties=b"")
    assert record.size_of(plain, 1) == 92
    assert record.size_of(plain, 2) == 93
    assert record.size_of(sample(topic="t", body=b"12", properties=b"a\x01b"), 1) == 97
    assert record.size_of(sample(topic="t", body=None, properties=b"", born_host=v6), 1) == 104


@pytest.mark.parametrize(
    ("fields", "version", "error"),
    [
        ({"topic": "t" * 128}, 1, TopicTooLong),
        ({"topic": "é" * 64}, 1, TopicTooLong),
        ({"topic": "t" * 256}, 2, TopicTooLong),
        ({"topic": ""}, 1, MessageInvalid),
        ({"topic": "\ud800"}, 1, MessageInvalid),
        ({"properties": bytes(32768)}, 1, PropertiesTooLong),
    ],
)
def test_what_no_record_can_hold_has_no_size(
    fields: dict[str, object], version: int, error: type[Exception]
) -> None:
    with pytest.raises(error):
        record.size_of(sample(**fields), version)


def log(*records: bytes) -> bytes:
    """Records moved to where they stand, offsets from 1000 on."""
    data = bytearray()
    for one in records:
        moved = bytearray(one)
        moved[28:36] = (1000 + len(data)).to_bytes(8)
        data += moved
    return bytes(data)


def scan(data: bytes, end: int | None = None) -> list[Record | Blank | RecordError]:
    return list(record.scan(data, 0, len(data) if end is None else end, 1000))


def test_a_scan_yields_records_in_order_with_their_offsets() -> None:
    found = scan(log(encode(sample(body=b"1")), encode(sample(body=b"2"))))
    assert [(r.physical_offset, r.body) for r in found if isinstance(r, Record)] == [
        (1000, b"1"),
        (1000 + len(encode(sample(body=b"1"))), b"2"),
    ]


def test_a_scan_goes_on_behind_a_record_whose_lengths_add_up() -> None:
    bad = changed(BODY_AT, b"J")
    found = scan(log(encode(sample()), bad, encode(sample())))
    assert [type(item) for item in found] == [Record, RecordBodyCorrupt, Record]
    assert isinstance(found[1], RecordError)
    assert (found[1].offset, found[1].size) == (1000 + len(bad), len(bad))


def test_a_scan_ends_where_a_record_does_not_say_how_long_it_is() -> None:
    found = scan(log(encode(sample()), changed(4, b"\0"), encode(sample())))
    assert [type(item) for item in found] == [Record, RecordMagicUnknown]


def test_a_scan_reports_a_blank_record_and_goes_on_behind_it() -> None:
    first = log(encode(sample()))
    blank = bytearray(50)
    record.write_blank(blank, 0, 50)
    behind = bytearray(encode(sample(), offset=1000 + len(first) + 50))
    found = scan(bytes(first + blank + behind))
    assert [type(item) for item in found] == [Record, Blank, Record]
    assert found[1] == Blank(1000 + len(first), 50)
    assert scan(bytes(first + blank), len(first) + 8)[1:] == [Blank(1000 + len(first), 50)]


@pytest.mark.parametrize("size", [0, 7, 2**31, 2**32 - 1])
def test_a_scan_ends_at_a_blank_record_of_an_impossible_size(size: int) -> None:
    data = size.to_bytes(4) + bytes.fromhex("cbd43194") + encode(sample())
    assert len(scan(data)) == 1


def test_a_blank_record_is_no_message() -> None:
    with pytest.raises(RecordMagicUnknown, match="blank"):
        decode(bytes.fromhex("00001000cbd43194"))


@given(st.binary(max_size=400))
def test_a_scan_of_anything_ends(data: bytes) -> None:
    assert len(scan(data)) <= len(data) // 8 + 1


def test_bodies_may_hold_forged_records_which_a_scan_walks_over() -> None:
    forged = encode(sample(body=b"forged"), offset=1000 + BODY_AT)
    found = scan(log(encode(sample(body=forged)), encode(sample())))
    assert [item.body for item in found if isinstance(item, Record)] == [forged, b"hello"]


def test_walking_and_scanning_find_the_same_records() -> None:
    data = log(*(encode(sample(body=hashlib.sha256(bytes([n])).digest())) for n in range(50)))
    starts = array("q")
    result = _kernel.check_run(
        data, 0, len(data), 1000, verify_body=True, max_records=100, starts=starts
    )
    assert result[1:3] == (len(data), 50)
    scanned = [item.physical_offset - 1000 for item in scan(data) if isinstance(item, Record)]
    assert list(starts) == scanned


def test_a_record_without_its_body_costs_no_copy_of_the_body() -> None:
    """Many queue entries may name one large record."""
    message = sample(body=bytes(4 << 20))
    data = encode(message)
    tracemalloc.start()
    try:
        found = record.decode(
            data, 0, len(data), physical_offset=0, verify_body=False, with_body=False
        )
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (found.topic, found.size, found.body) == (message.topic, len(data), b"")
    assert found.raw_properties == message.properties
    assert peak < 64 << 10
