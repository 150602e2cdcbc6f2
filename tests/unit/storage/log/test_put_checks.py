"""Puts that are refused before anything is written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.storage.codec.hosts import Host
from mqstore.storage.codec.record import Message, size_of
from mqstore.storage.config import StoreConfig
from mqstore.storage.errors import (
    MessageInvalid,
    MessageTooLarge,
    PropertiesTooLong,
    PutRefused,
    TopicTooLong,
)
from mqstore.storage.layout import StoreFormat, SysFlag
from mqstore.storage.log.put_checks import (
    BATCH_ITEM_FIXED_SIZE,
    PutLimits,
    check_batch,
    check_message,
    check_size,
)

HOST = Host.parse("127.0.0.1", 10911)
CONFIG = StoreConfig(max_message_size=1000, mapped_file_size_commit_log=65536)
V4 = PutLimits.of(CONFIG, StoreFormat.V4_9)
V5 = PutLimits.of(CONFIG, StoreFormat.V5_X)


def message(**changes: object) -> Message:
    base = Message("topic", 0, b"body", b"", HOST, HOST, 1_700_000_000_000)
    return base.replace(**changes)


@pytest.mark.parametrize("body", [None, b"", b"x" * 1000])
def test_a_body_up_to_the_maximum_is_taken(body: bytes | None) -> None:
    assert check_message(message(body=body), V4) == 1


def test_a_body_over_the_maximum_is_refused() -> None:
    with pytest.raises(MessageTooLarge, match="maxMessageSize"):
        check_message(message(body=b"x" * 1001), V4)


def test_properties_are_counted_in_bytes() -> None:
    check_message(message(properties=b"k\x01" + b"v" * 32765), V4)
    with pytest.raises(PropertiesTooLong):
        check_message(message(properties=b"k\x01" + b"v" * 32766), V4)


@pytest.mark.parametrize("before", [b"", b"k\x01v\x02"])
def test_the_checksum_of_another_record_is_refused(before: bytes) -> None:
    with pytest.raises(MessageInvalid, match="__CRC32#"):
        check_message(message(properties=before + b"__CRC32#\x010123456789\x02"), V5)


@pytest.mark.parametrize(
    "properties",
    [b"k\x01v", b"__CRC32#\x01012345678\x02", b"k\x01", b"\x01v", b"k\x01v\x02\x02", b"k\x01\xff"],
)
def test_properties_that_rocketmq_reads_leniently_are_taken(properties: bytes) -> None:
    assert check_message(message(properties=properties), V4) == 1


@pytest.mark.parametrize(
    "properties", [b"k", b"\x02", b"k\x02v\x02", b"\0", b"k\x01v\0", b"k\x01\0v"]
)
def test_properties_that_would_read_as_a_torn_record_are_refused(properties: bytes) -> None:
    with pytest.raises(MessageInvalid, match="properties"):
        check_message(message(properties=properties), V4)


def test_a_negative_queue_is_refused() -> None:
    with pytest.raises(MessageInvalid, match="queue id"):
        check_message(message(queue_id=-1), V4)


@pytest.mark.parametrize(
    ("topic", "limits", "version"),
    [
        ("t" * 127, V4, 1),
        ("t" * 127, V5, 1),
        ("é" * 63, V4, 1),
        ("t" * 128, V5, 2),
        ("t" * 255, V5, 2),
        ("é" * 127, V5, None),
        ("é" * 128, V5, None),
        ("t" * 128, V4, None),
        ("é" * 64, V4, None),
        ("é" * 64, V5, None),
        ("t" * 256, V5, None),
    ],
)
def test_the_topic_decides_the_record_version(
    topic: str, limits: PutLimits, version: int | None
) -> None:
    if version is None:
        with pytest.raises(TopicTooLong):
            check_message(message(topic=topic), limits)
    else:
        assert check_message(message(topic=topic), limits) == version


def test_topic_characters_are_counted_as_java_counts_them() -> None:
    mixed = "t" * 100 + "\N{GRINNING FACE}" * 14  # 114 code points, 128 UTF-16 units, 156 bytes
    assert check_message(message(topic=mixed), V5) == 2


@pytest.mark.parametrize("topic", ["", "half \ud800"])
def test_a_topic_that_cannot_be_read_back_is_refused(topic: str) -> None:
    with pytest.raises(MessageInvalid):
        check_message(message(topic=topic), V5)


def test_a_record_must_leave_the_reserve_of_its_segment() -> None:
    check_size(65536 - 8, V4)
    with pytest.raises(MessageTooLarge, match="fit no segment"):
        check_size(65536 - 7, V4)


def test_a_batch_is_of_one_topic_and_queue() -> None:
    check_batch([message(), message()], V4)
    with pytest.raises(MessageInvalid, match="one batch a queue"):
        check_batch([message(), message(queue_id=1)], V4)
    with pytest.raises(MessageInvalid, match="one batch a queue"):
        check_batch([message(), message(topic="other")], V4)


def test_an_empty_batch_is_refused() -> None:
    with pytest.raises(MessageInvalid, match="empty"):
        check_batch([], V4)


@pytest.mark.parametrize(
    "flag",
    [SysFlag.TRANSACTION_PREPARED, SysFlag.TRANSACTION_COMMIT, SysFlag.TRANSACTION_ROLLBACK],
)
def test_a_batch_takes_no_transactional_message(flag: SysFlag) -> None:
    with pytest.raises(MessageInvalid, match="transactional"):
        check_batch([message(), message(sys_flag=flag)], V4)


def test_a_batch_counts_as_its_encoding_against_the_maximum() -> None:
    half = message(body=b"x" * (500 - BATCH_ITEM_FIXED_SIZE))
    check_batch([half, half], V4)
    with pytest.raises(MessageTooLarge, match="batch"):
        check_batch([half, half, message(body=b"")], V4)


@given(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=300),
    st.sampled_from([V4, V5]),
)
def test_whatever_topic_is_taken_has_a_length_that_reads_back(
    topic: str, limits: PutLimits
) -> None:
    try:
        version = check_message(message(topic=topic), limits)
    except PutRefused:
        return
    assert 0 < len(topic.encode()) <= (255 if version == 2 else 127)
    assert size_of(message(topic=topic), version) > 91
