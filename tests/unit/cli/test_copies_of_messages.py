"""Messages from JSON lines, and copies of stored messages."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mqstore.cli.produce import fields_of_line, paced, parameters_of
from mqstore.cli.stored_message import OWN_PROPERTIES, copy_fields, is_own
from mqstore.client import NewMessage
from mqstore.storage.layout import StoreFormat
from mqstore.storage.topic_names import _STORE_ONLY_PROPERTIES, RESERVED_PROPERTIES
from mqstore.wire.examples.lookups import MESSAGE


def test_names_of_rocketmq_are_those_that_a_store_refuses() -> None:
    refused = _STORE_ONLY_PROPERTIES.union(*(RESERVED_PROPERTIES[each] for each in StoreFormat))
    assert {each for each in refused if not is_own(each)} == set()
    assert refused >= OWN_PROPERTIES


def test_a_copy_has_the_content_without_place_and_unique_key() -> None:
    stored: dict[str, Any] = {
        **MESSAGE,
        "properties": {"a": "b", "UNIQ_KEY": "u", "__SHARDINGKEY": "k"},
    }
    found = copy_fields(stored)
    assert found["properties"] == {"a": "b"}
    assert found["orderingKey"] == "k"
    assert not {"uniqKey", "queueId", "offsetMsgId"} & found.keys()
    NewMessage(**parameters_of(found))


def test_a_line_has_the_fields_of_the_api() -> None:
    line = json.dumps({"bodyBase64": "AP8=", "keys": ["k"], "queueId": 1, "delayS": 2})
    found = fields_of_line(line.encode(), 1)
    assert found == {"body": b"\0\xff", "keys": ["k"], "queue_id": 1, "delay_s": 2}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"{", "line 3 of stdin"),
        (b"[]", "it is no object"),
        (b"{}", "neither body nor bodyBase64"),
        (b'{"body": 1}', "body is 1"),
        (b'{"body": "a", "boddy": "b"}', "boddy is no field"),
        (b'{"bodyBase64": "?"}', "no base64"),
        (b"\xff", "line 3 of stdin"),
    ],
)
def test_a_line_that_is_no_message_is_named(line: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        fields_of_line(line, 3)


def test_messages_are_paced_by_their_number() -> None:
    messages = [NewMessage(body=each) for each in "abc"]
    assert list(paced(messages, 1_000_000)) == messages
