from __future__ import annotations

import json
from typing import Annotated, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.service import bodies
from mqstore.service.http import HotRequest
from mqstore.service.limits import Limits
from mqstore.service.problems import Problem
from mqstore.service.settings import Settings


class Part(msgspec.Struct):
    number: int


class Body(msgspec.Struct, forbid_unknown_fields=True):
    name: Annotated[str, msgspec.Meta(min_length=1)]
    parts: list[Part] = []


DECODER = msgspec.json.Decoder(Body)


def request(media_type: bytes) -> HotRequest:
    async def nothing() -> Any:
        raise AssertionError("the body was read before")

    scope = {"type": "http", "headers": [(b"content-type", media_type)]}
    return HotRequest(scope, nothing, {}, Limits.of(Settings()))


@pytest.mark.parametrize("media_type", [b"application/json; charset=utf-8", b"Application/ab+JSON"])
def test_a_body_becomes_a_struct(media_type: bytes) -> None:
    found = bodies.read(DECODER, request(media_type), b'{"name": "a", "parts": [{"number": 1}]}')
    assert found == Body(name="a", parts=[Part(number=1)])


@pytest.mark.parametrize(
    ("body", "kind", "detail"),
    [
        (b"{", "bad-json", "the body is no JSON: input data was truncated"),
        (b"", "bad-json", "the body is no JSON: it is empty"),
        (b'{"name": "\\ud800"}', "bad-json", "half a surrogate pair"),
        (b'{"name": "\xff"}', "bad-json", "the body is no JSON"),
        (b'"a"', "body-invalid", "expected `object`, got `str`"),
        (b"{}", "body-invalid", "missing required field `name`"),
        (b'{"name": "a", "other": 1}', "body-invalid", "unknown field `other`"),
        (b'{"name": "a", "parts": [{"number": "x"}]}', "body-invalid", "at `$.parts[0].number`"),
        (b'{"name": "a", "name": "b"}', "bad-json", "member 'name' is twice in one object"),
        (b'{"name":"a","n\\u0061me":"b"}', "bad-json", "member 'name' is twice"),
        (b'{"name":"a","parts":[{"number":1},{"number":1,"number":2}]}', "bad-json", "'number'"),
    ],
)
def test_what_is_wrong_with_a_body_is_said(body: bytes, kind: str, detail: str) -> None:
    with pytest.raises(Problem) as caught:
        bodies.read(DECODER, request(b"application/json"), body)
    assert caught.value.kind.name == kind
    assert detail in caught.value.detail


def test_another_media_type_is_refused() -> None:
    with pytest.raises(Problem) as caught:
        bodies.read(DECODER, request(b"text/plain"), b'{"name": "a"}')
    assert caught.value.kind.name == "unsupported-media-type"


@given(st.recursive(st.text(), lambda each: st.lists(each) | st.dictionaries(st.text(), each)))
def test_a_body_without_a_repeated_member_is_accepted(value: Any) -> None:
    bodies.require_distinct(json.dumps(value).encode())


@given(st.dictionaries(st.text(), st.integers(), min_size=1), st.data())
def test_a_repeated_member_is_named(table: dict[str, int], data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(table)))
    pairs = data.draw(st.permutations([*table.items(), (name, 0)]))
    text = ",".join(f"{json.dumps(key)}: {value}" for key, value in pairs)
    with pytest.raises(Problem) as caught:
        bodies.require_distinct(f'[{{"in": {{{text}}}}}]'.encode())
    assert repr(name) in caught.value.detail
