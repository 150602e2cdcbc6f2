"""Integers of replies as strings: the document is the same but for them."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.service import integers
from mqstore.service.app import Api
from mqstore.service.health import Health
from mqstore.service.http import HotRequest, HotRoute, Reply
from mqstore.service.problems import TOPIC_UNKNOWN, Problem
from mqstore.service.settings import load
from mqstore.wire.operation import Role

LARGE = 2**63 - 1
DOCUMENTS = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
    | st.sampled_from(['"1"', "\\", '\\"2', "-3", "[4, 5]"]),
    lambda each: st.lists(each) | st.dictionaries(st.text() | st.just("6"), each),
)
STRINGS = {"accept": "application/json; integers=string"}


def _with_strings(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _with_strings(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_with_strings(each) for each in value]
    return str(value) if type(value) is int else value


@given(DOCUMENTS, st.booleans(), st.sampled_from([None, 1]))
def test_each_integer_is_its_own_text_and_all_else_is_equal(
    document: Any, ascii_only: bool, indent: int | None
) -> None:
    text = json.dumps(document, ensure_ascii=ascii_only, indent=indent)
    assert json.loads(integers.as_strings(text.encode())) == _with_strings(document)


@pytest.mark.parametrize("number", [b"1.5", b"1e5", b"-2E-7", b"1.0e+10"])
def test_other_numbers_are_unchanged(number: bytes) -> None:
    assert integers.as_strings(b"[%b,1]" % number) == b'[%b,"1"]' % number


@pytest.mark.parametrize(
    ("accept", "wanted"),
    [
        ("application/json;integers=string", True),
        ('text/html, application/json; q=0.9; integers="string", */*', True),
        ("Application/JSON; Integers=String; q=1", True),
        ("application/json", False),
        ("application/json; integers=number", False),
        ("application/json; integers=strings", False),
        ("text/event-stream; integers=string", False),
        ("application/json, text/html; integers=string", False),
    ],
)
def test_the_media_type_of_accept_decides(accept: str, wanted: bool) -> None:
    scope = {"path": "/v1/topics", "headers": [(b"accept", accept.encode())]}
    assert integers.are_strings(scope) is wanted
    assert not integers.are_strings(integers.with_numbers(scope))
    assert not integers.are_strings({**scope, "path": "/openapi.json"})


def _get(path: str, **headers: str) -> httpx.Response:
    """The reply of an interface with a hot and a cold route, and one that fails."""
    api = Api(load(), Health(), title="test", description="A test.", tags={})

    async def hot(request: HotRequest) -> Reply:
        assert request.header(b"accept") in (None, b"*/*", b"application/json")
        return Reply(b'{"offset":%d,"part":0.5}' % LARGE)

    async def fail(request: HotRequest) -> Reply:
        raise Problem(TOPIC_UNKNOWN, "none", extra={"offset": LARGE})

    async def cold() -> dict[str, Any]:
        return {"offset": LARGE, "part": 0.5}

    operation: dict[str, Any] = {"responses": {}}
    api.add_hot(HotRoute("GET", "/v1/hot", Role.CONSUME, hot, operation))
    api.add_hot(HotRoute("GET", "/v1/fail", Role.CONSUME, fail, operation))
    api.app.add_api_route("/v1/cold", cold)
    transport = httpx.ASGITransport(app=api.front())

    async def call() -> httpx.Response:
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            return await http.get(path, headers=headers)

    return asyncio.run(call())


@pytest.mark.parametrize("path", ["/v1/hot", "/v1/cold"])
def test_hot_and_cold_routes_reply_alike(path: str) -> None:
    reply = _get(path, **STRINGS)
    assert reply.json() == {"offset": str(LARGE), "part": 0.5}
    assert reply.headers["content-type"] == "application/json; integers=string"
    assert int(reply.headers["content-length"]) == len(reply.content)
    assert _get(path).json() == {"offset": LARGE, "part": 0.5}


def test_status_of_a_problem_remains_a_number() -> None:
    reply = _get("/v1/fail", **STRINGS)
    assert reply.headers["content-type"] == "application/problem+json"
    problem = reply.json()
    assert (problem["status"], problem["offset"]) == (404, str(LARGE))
    missing = _get("/v1/none", **STRINGS).json()
    assert missing["status"] == 404
