"""One bit at a time: which field of which record a bit belongs to, and flipping it in a mapping."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from mqstore.storage.layout import MAGIC_V1, SysFlag


class Field(NamedTuple):
    """Bytes ``start`` to before ``end`` of a record."""

    name: str
    start: int
    end: int


def fields_of(record: bytes) -> list[Field]:
    """The fields of one whole record, in order and without gaps."""
    sys_flag = int.from_bytes(record[36:40])
    body_length = int.from_bytes(record[_body_at(sys_flag) - 4 : _body_at(sys_flag)])
    width = 1 if int.from_bytes(record[4:8]) == MAGIC_V1 else 2
    topic_at = _body_at(sys_flag) + body_length + width
    topic_length = int.from_bytes(record[topic_at - width : topic_at])
    sizes = [
        *(("total_size", 4), ("magic", 4)),
        ("body_crc" if body_length else "body_crc_of_no_body", 4),
        *(("queue_id", 4), ("flag", 4), ("queue_offset", 8), ("physical_offset", 8)),
        *(("sys_flag", 4), ("born_timestamp", 8)),
        ("born_host", 16 if sys_flag & SysFlag.BORN_HOST_V6 else 4),
        *(("port_zeros", 2), ("born_host", 2), ("store_timestamp", 8)),
        ("store_host", 16 if sys_flag & SysFlag.STORE_HOST_V6 else 4),
        *(("port_zeros", 2), ("store_host", 2), ("reconsume_times", 4)),
        *(("prepared_transaction_offset", 8), ("body_length", 4), ("body", body_length)),
        *(("topic_length", width), ("topic", topic_length), ("properties_length", 2)),
        ("properties", len(record) - topic_at - topic_length - 2),
    ]
    fields, at = [], 0
    for name, size in sizes:
        fields.append(Field(name, at, at + size))
        at += size
    assert at == len(record)
    return fields


def _body_at(sys_flag: int) -> int:
    hosts_v6 = (sys_flag & (SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6)).bit_count()
    return 88 + 12 * hosts_v6


@contextmanager
def flipped(view: memoryview | bytearray, bit: int) -> Iterator[None]:
    """Bit 0 is the most significant of byte 0; it is put back afterwards."""
    byte, mask = bit // 8, 0x80 >> bit % 8
    view[byte] ^= mask
    try:
        yield
    finally:
        view[byte] ^= mask


def bits(start: int, end: int, step: int) -> range:
    """Every ``step``-th bit of bytes ``start`` to before ``end``; a prime one meets all places."""
    return range(start * 8, end * 8, step)
