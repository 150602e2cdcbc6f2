from __future__ import annotations

import json

import msgspec
import pytest

from mqstore.query import examples, views
from mqstore.storage.codec import record
from mqstore.storage.codec.hosts import Host
from mqstore.storage.codec.record import Message, Record


def _record(body: bytes = b"hello", sys_flag: int = 0, raw: bytes = b"") -> Record:
    host = Host(b"\x7f\0\0\1", 10911)
    message = Message("orders", 0, body, raw, host, host, 1, sys_flag=sys_flag)
    out = bytearray(record.size_of(message, 1))
    record.encode_into(
        out, 0, message, version=1, queue_offset=0, physical_offset=0, store_timestamp_ms=2
    )
    return record.decode(out, 0, len(out), physical_offset=0)


def test_message_has_the_fields_of_the_documented_example() -> None:
    shown = json.loads(msgspec.json.encode(views.message(_record(), 0)))
    assert set(shown) == set(examples.MESSAGE)


def test_body_that_is_no_text_is_base64() -> None:
    shown = json.loads(msgspec.json.encode(views.message(_record(b"\xff\0"), 0)))
    assert shown["bodyBase64"] == "/wA="
    assert "body" not in shown


def test_properties_tags_and_keys_are_shown() -> None:
    raw = b"KEYS\x01a b\x02TAGS\x01t\x02UNIQ_KEY\x01u\x02x\x01y"
    shown = views.message(_record(raw=raw), 0)
    assert (shown.keys, shown.tags, shown.uniq_key) == (["a", "b"], "t", "u")
    assert shown.properties["x"] == "y"


@pytest.mark.parametrize(
    ("sys_flag", "names"),
    [
        (0, []),
        (0x1, ["COMPRESSED"]),
        (0x4, ["TRANSACTION_PREPARED"]),
        (0x8, ["TRANSACTION_COMMIT"]),
        (0xC, ["TRANSACTION_ROLLBACK"]),
        (0x331, ["COMPRESSED", "BORN_HOST_V6", "STORE_HOST_V6", "COMPRESSION_ZLIB"]),
    ],
)
def test_sys_flag_has_names(sys_flag: int, names: list[str]) -> None:
    assert views.flag_names(sys_flag) == names


def test_ipv6_hosts_stand_in_brackets() -> None:
    assert views.host_text(Host(b"\0" * 15 + b"\1", 5)) == "[0:0:0:0:0:0:0:1]:5"
