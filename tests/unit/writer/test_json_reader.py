"""The kernel's reader of produce requests makes what the general decoder makes, or nothing."""

from __future__ import annotations

import base64
import itertools
import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mqstore.service.problems import Problem
from mqstore.storage.errors import StorageError
from mqstore.storage.formats import StoreFormat, decode_properties
from mqstore.storage.puts import Message
from tests.unit.writer.json_reading import (
    COUNT_MAX,
    KEYS,
    decoded,
    in_general,
    read,
    require_same,
)
from tests.unit.writer.json_requests import requests


def message_of(**fields: Any) -> Message:
    batch = read(json.dumps({"messages": [fields]}).encode())
    assert batch is not None
    (found,) = decoded(batch)
    return found


@given(requests())
@example(b'{"messages":[{"tags":"a||b","uniqKey":"A"}]}')
@example(b'{"messages":[{"tags":" a","uniqKey":"A"}]}')
@example(b'{"messages":[{"tags":"a ","uniqKey":"A"}]}')
@example(b'{"messages":[{"tags":"a|b","uniqKey":"A"}]}')
@example(b'{"messages":[{"body":"\\ud83d\\ude00 \\u00e4\\n\\/\\"","uniqKey":"A"}]}')
@example(b'{"messages":[{"body":"\\ud83d","uniqKey":"A"}]}')
@example(b'{"messages":[{"body":"\xff","uniqKey":"A"}]}')
@example(b'{"messages":[{"queueId":-0}]}')
@example(b'{"messages":[{}, {"uniqKey": "A"}]}')
@example(b'{"messages":[{"body":"a","body":"b"}]}')
def test_what_is_read_is_what_the_general_decoder_makes(text: bytes) -> None:
    batch = read(text)
    if batch is not None:
        require_same(text, batch)


@given(
    st.lists(st.fixed_dictionaries({"body": st.text(max_size=50)}), min_size=1, max_size=COUNT_MAX)
)
def test_plain_requests_are_read(wanted: list[dict[str, str]]) -> None:
    try:
        text = json.dumps({"messages": wanted}, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return
    batch = read(text)
    assert batch is not None and not batch.has_keys
    assert [each.body for each in decoded(batch)] == [each["body"].encode() for each in wanted]


@given(st.binary(max_size=60))
def test_a_body_in_base64_is_read(body: bytes) -> None:
    assert message_of(bodyBase64=base64.b64encode(body).decode()).body == body


@pytest.mark.parametrize("text", ["A", "AA=", "=AAA", "A===", "AB==CC==", "A-B_", "AAA"])
def test_a_body_that_is_no_base64_is_left_to_the_general_decoder(text: str) -> None:
    assert read(b'{"messages":[{"bodyBase64":"%b"}]}' % text.encode()) is None


@given(st.integers(0, 200), st.data())
def test_no_prefix_of_a_request_is_read(size: int, data: st.DataObject) -> None:
    text = b'{"messages": [{"body": "a\\n\\u00e4", "keys": ["k"], "properties": {"a": "b"}}]}'
    assert read(text[: min(size, len(text) - 1)]) is None
    at = data.draw(st.integers(0, len(text) - 1))
    changed = text[:at] + bytes([data.draw(st.integers(0, 255))]) + text[at + 1 :]
    batch = read(changed)
    if batch is not None:
        require_same(changed, batch)


def test_requests_over_the_number_of_messages_or_bytes_are_left_to_the_general_decoder() -> None:
    def of(count: int, size: int = 1) -> bytes:
        return json.dumps({"messages": [{"body": "x" * size}] * count}).encode()

    assert read(of(COUNT_MAX)) is not None
    assert read(of(COUNT_MAX + 1)) is None
    assert read(of(1, 256 << 10)) is None


def test_a_batch_ends_its_properties_as_the_format_of_the_store_does() -> None:
    text = b'{"messages":[{"uniqKey":"K","tags":"t"}]}'
    for store_format, end in ((StoreFormat.V4_9, b"t"), (StoreFormat.V5_X, b"t\x02")):
        batch = read(text, store_format)
        assert batch is not None and batch.data.endswith(end), store_format


def test_generated_keys_follow_one_another_in_one_sequence() -> None:
    first = KEYS.next()
    made = [decode_properties(message_of().properties)["UNIQ_KEY"], KEYS.next()]
    counted = [int(key[-4:], 16) for key in (first, *made)]
    assert all((b - a) & 0xFFFF in (1, 2) for a, b in itertools.pairwise(counted))
    assert len({key[:20] for key in (first, *made)}) == 1


@pytest.mark.parametrize(
    "message",
    [
        {"properties": {"KEYS": "a"}},
        {"properties": {"a": "\x01"}},
        {"keys": ["two words"]},
        {"keys": [""]},
        {"uniqKey": ""},
        {"delayLevel": 1},
        {"body": "a", "crc32c": 1},
        {"body": None},
        {"other": 1},
        {"body": "a", "bodyBase64": ""},
        {"queueId": 1.0},
    ],
)
def test_what_is_odd_is_left_to_the_general_decoder(message: dict[str, Any]) -> None:
    text = json.dumps({"messages": [message]}).encode()
    assert read(text) is None
    with_error = {"delayLevel": 1}, {"body": None}
    if message not in with_error:
        with pytest.raises((Problem, StorageError)):
            in_general(text, ["K"])
