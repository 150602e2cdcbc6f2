"""Structs that are derived from the models of the contract read and write the same documents."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from mqstore.service.structs import struct_of
from mqstore.wire import lags as lag_models
from mqstore.wire import messages, queues, segments
from mqstore.wire import traces as trace_models
from mqstore.wire.checks import CheckReport, LeaseChecks, ProducerCall, ProducerTarget, SentCheck
from mqstore.wire.examples import lags, lookups, traces
from mqstore.wire.produce import Content, NewMessage, ProduceRequest, body_bytes
from mqstore.wire.transactions import NewHalf, Reason, TransactionSpec

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


PARTS: tuple[type[BaseModel], ...] = (NewMessage, NewHalf, SentCheck, ProducerCall)
REQUESTS: tuple[type[BaseModel], ...] = (
    *(ProduceRequest, TransactionSpec, Reason, LeaseChecks, CheckReport, ProducerTarget),
    *PARTS,
)
"""Models of which hot routes decode structs."""
_INTEGERS = st.integers() | st.sampled_from([-1, 0, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**63])
_SCALARS = (
    st.none()
    | st.booleans()
    | _INTEGERS
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=9)
)
_VALUES = (
    _SCALARS
    | st.lists(_SCALARS, max_size=3)
    | st.dictionaries(st.text(max_size=3), _SCALARS, max_size=3)
    | st.sampled_from(["sync", "async", "aGk=", "aGk", "a-_="])
)


@st.composite
def _documents(draw: st.DrawFn, model: type[BaseModel]) -> dict[str, Any]:
    """A document of a model: fields that fit, fields that do not, and now and then another one."""
    document = {}
    for name, field in model.model_fields.items():
        if field.is_required() or draw(st.booleans()):
            document[field.alias or name] = draw(_fitting(field.annotation) | _VALUES)
    if draw(st.integers(0, 9)) == 0:
        document[draw(st.text(max_size=9))] = draw(_VALUES)
    return document


def _fitting(annotation: Any) -> st.SearchStrategy[Any]:
    for part in PARTS:
        if annotation == list[part]:  # type: ignore[valid-type]
            return st.lists(_documents(part), max_size=3)
    if annotation == list[str]:
        return st.lists(st.text(max_size=9), max_size=3)
    if annotation == dict[str, str]:
        return st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=3)
    if "int" in str(annotation):
        return st.integers(0, 9)
    return st.text(max_size=9) | st.sampled_from(["sync", "aGk="])


@pytest.mark.parametrize("model", REQUESTS)
@given(st.data())
def test_a_struct_takes_the_documents_that_its_model_takes(
    model: type[BaseModel], data: st.DataObject
) -> None:
    text = json.dumps(data.draw(_documents(model)))
    assert _of_struct(model, text) == _of_model(model, text)


def _of_model(model: type[BaseModel], text: str) -> dict[str, Any] | None:
    try:
        return model.model_validate_json(text).model_dump()
    except ValidationError:
        return None


def _of_struct(model: type[BaseModel], text: str) -> dict[str, Any] | None:
    """Bodies, a rule between two fields, are checked where messages are built."""
    try:
        found: Any = msgspec.json.decode(text, type=struct_of(model))
    except msgspec.ValidationError:
        return None
    given_ = [found] if issubclass(model, Content) else []
    messages: Any = found.messages if "messages" in model.model_fields else given_
    try:
        for each in messages:
            body_bytes(each.body, each.body_base64)
    except ValueError:
        return None
    taken: dict[str, Any] = msgspec.to_builtins(found)
    names = {each.alias: name for known in REQUESTS for name, each in known.model_fields.items()}
    renamed: dict[str, Any] = _renamed(
        taken, {alias: name for alias, name in names.items() if alias}
    )
    return renamed


def _renamed(value: Any, names: dict[str, str]) -> Any:
    """A document with the names that its fields have in Python."""
    if isinstance(value, list):
        return [_renamed(each, names) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        names.get(name, name): each if name == "properties" else _renamed(each, names)
        for name, each in value.items()
    }
