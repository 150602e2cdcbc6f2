from __future__ import annotations

from typing import Annotated, Any

import pytest
from pydantic import BaseModel, ConfigDict, Field

from mqstore.service import bodies
from mqstore.service.http import HotRequest
from mqstore.service.limits import Limits
from mqstore.service.problems import Problem
from mqstore.service.settings import Settings


class Part(BaseModel):
    number: int


class Asked(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: Annotated[str, Field(min_length=1)]
    parts: list[Part] = []


def request(media_type: bytes) -> HotRequest:
    async def nothing() -> Any:
        raise AssertionError("the body was read before")

    scope = {"type": "http", "headers": [(b"content-type", media_type)]}
    return HotRequest(scope, nothing, {}, Limits.of(Settings()))


@pytest.mark.parametrize("media_type", [b"application/json; charset=utf-8", b"Application/ab+JSON"])
def test_a_body_becomes_a_model(media_type: bytes) -> None:
    found = bodies.read(Asked, request(media_type), b'{"name": "a", "parts": [{"number": 1}]}')
    assert found == Asked(name="a", parts=[Part(number=1)])


@pytest.mark.parametrize(
    ("body", "kind", "detail"),
    [
        (b"{", "bad-json", "the body is no JSON: EOF while parsing"),
        (b'{"name": "\xff"}', "bad-json", "the body is no JSON"),
        (b'"a"', "body-invalid", "body: it should be a JSON object"),
        (b"{}", "body-invalid", "name: it is needed"),
        (b'{"name": "a", "other": 1}', "body-invalid", "other: there is no such field"),
        (b'{"name": "a", "parts": [{"number": "x"}]}', "body-invalid", "parts.0.number: it should"),
    ],
)
def test_what_is_wrong_with_a_body_is_said(body: bytes, kind: str, detail: str) -> None:
    with pytest.raises(Problem) as caught:
        bodies.read(Asked, request(b"application/json"), body)
    assert caught.value.kind.name == kind
    assert detail in caught.value.detail


def test_another_media_type_is_refused() -> None:
    with pytest.raises(Problem) as caught:
        bodies.read(Asked, request(b"text/plain"), b'{"name": "a"}')
    assert caught.value.kind.name == "unsupported-media-type"
