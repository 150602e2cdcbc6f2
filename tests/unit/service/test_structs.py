"""Structs that are derived from the models of the contract read and write the same documents."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from pydantic import BaseModel

from mqstore.service.structs import struct_of
from mqstore.wire import lags as lag_models
from mqstore.wire import messages, queues, segments
from mqstore.wire import traces as trace_models
from mqstore.wire.examples import lags, lookups, traces

REPLIES = [
    (messages.Message, lookups.MESSAGE),
    (messages.MessageDetail, lookups.MESSAGE_DETAIL),
    (messages.Messages, lookups.BY_KEY),
    (queues.Queues, lookups.QUEUES),
    (queues.Pull, lookups.PULL),
    (queues.QueueOffset, lookups.OFFSET),
    (segments.LogFiles, lookups.SEGMENTS),
    (segments.StoreState, lookups.STORE),
    (lag_models.GroupLag, lags.LAG),
    (lag_models.GroupLags, lags.LAGS),
    (trace_models.MessageTrace, traces.TRACE),
    (trace_models.Traces, traces.TRACES),
]


@pytest.mark.parametrize(("model", "example"), REPLIES)
def test_a_reply_is_the_same_from_the_struct_and_from_the_model(
    model: type[BaseModel], example: dict[str, Any]
) -> None:
    text = json.dumps(example)
    of_struct = msgspec.json.encode(msgspec.json.decode(text, type=struct_of(model)))
    assert json.loads(of_struct) == example
    of_model = model.model_validate_json(text).model_dump(mode="json", by_alias=True)
    assert of_model == example


def test_a_field_that_is_left_out_is_given_back_when_it_has_a_value() -> None:
    found = msgspec.json.decode(
        json.dumps(lookups.MESSAGE | {"checkedBy": "record"}), type=struct_of(messages.Message)
    )
    assert json.loads(msgspec.json.encode(found))["checkedBy"] == "record"


def test_a_struct_takes_no_field_for_granted_that_services_send() -> None:
    offset: dict[str, int | None] = {
        "queueId": 0,
        "committed": 1,
        "minOffset": 0,
        "maxOffset": 2,
        "lag": 1,
        "expired": 0,
    }
    offset |= {"lagMs": 0, "nextStoreTimestamp": None, "lastStoreTimestamp": None}
    assert lag_models.QueueLag.model_validate(offset).shard is None
    with pytest.raises(msgspec.ValidationError, match="shard"):
        msgspec.convert(offset, type=struct_of(lag_models.QueueLag))
