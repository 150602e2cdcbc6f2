from __future__ import annotations

import asyncio
import base64
import gzip
import hashlib
import re
from collections.abc import AsyncIterator, Callable
from typing import Annotated, Any

import httpx
import pytest
from fastapi import Query
from starlette.responses import StreamingResponse

from mqstore.service.app import Api
from mqstore.service.health import Health
from mqstore.service.http import HotRequest, HotRoute, Reply
from mqstore.service.settings import load
from mqstore.storage.errors import TopicUnknown
from mqstore.wire.operation import Role

BODY_MAX = 4096
LARGE = b'["a name of a topic"]' * 8_000


async def _echo(request: HotRequest) -> Reply:
    return Reply(await request.body(), 201, headers=((b"x-name", request.params["name"].encode()),))


async def _fail(request: HotRequest) -> Reply:
    raise TopicUnknown("no topic of that name")


async def _break(request: HotRequest) -> Reply:
    raise RuntimeError("secret detail")


OPERATION = {"responses": {"201": {"description": "The body."}}}


@pytest.fixture
def send() -> Callable[..., httpx.Response]:
    health = Health()
    settings = load(max_request_size=BODY_MAX)
    api = Api(settings, health, title="test", description="A test.", tags={"numbers": "Numbers."})
    api.add_hot(HotRoute("POST", "/echo/{name}", Role.PRODUCE, _echo, OPERATION))
    api.add_hot(HotRoute("POST", "/fail", Role.PRODUCE, _fail, OPERATION))
    api.add_hot(HotRoute("POST", "/break", Role.PRODUCE, _break, OPERATION))

    async def put(value: dict[str, int]) -> dict[str, int]:
        return value

    api.app.add_api_route("/cold/{number}", put, methods=["PUT"])

    async def get(number: int, plus: Annotated[int, Query(alias="add")] = 0) -> int:
        return number + plus

    api.app.add_api_route("/cold/{number}", get, methods=["GET"])

    async def many(request: HotRequest) -> Reply:
        return Reply(LARGE, headers=((b"etag", b'"1"'),) if request.query() else ())

    async def listed() -> list[str]:
        return ["name"] * 2_000

    async def streamed() -> StreamingResponse:
        return StreamingResponse(iter([LARGE, LARGE]), media_type="application/json")

    api.add_hot(HotRoute("GET", "/v1/large", None, many, OPERATION))
    api.add_hot(HotRoute("GET", "/large", None, many, OPERATION))
    api.app.add_api_route("/v1/listed", listed, methods=["GET"])
    api.app.add_api_route("/v1/streamed", streamed, methods=["GET"])
    transport = httpx.ASGITransport(app=api.front(), raise_app_exceptions=False)

    def request(method: str, path: str, **options: Any) -> httpx.Response:
        async def call() -> httpx.Response:
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
                return await http.request(method, path, **options)

        return asyncio.run(call())

    return request


Send = Callable[..., httpx.Response]


def _assert_problem(response: httpx.Response, status: int, name: str) -> None:
    assert response.status_code == status
    assert response.headers["content-type"] == "application/problem+json"
    problem = response.json()
    assert problem["type"] == f"urn:mqstore:problem:{name}"
    assert problem["status"] == status
    assert problem["requestId"] == response.headers["x-request-id"]


def test_hot_route_gets_its_parameters_decoded(send: Send) -> None:
    response = send("POST", "/echo/%25RETRY%25g", content=b"body")
    assert response.status_code == 201
    assert response.content == b"body"
    assert response.headers["x-name"] == "%RETRY%g"


def test_request_id_of_the_caller_is_kept(send: Send) -> None:
    response = send("POST", "/echo/a", headers={"x-request-id": "abc-1"})
    assert response.headers["x-request-id"] == "abc-1"


@pytest.mark.parametrize("bad", ["with space", "x" * 65, 'a"b'])
def test_request_id_that_could_forge_a_log_line_is_replaced(send: Send, bad: str) -> None:
    assert send("POST", "/echo/a", headers={"x-request-id": bad}).headers["x-request-id"] != bad


def test_storage_error_of_a_hot_route_is_a_problem(send: Send) -> None:
    _assert_problem(send("POST", "/fail"), 404, "topic-unknown")


def test_defect_is_a_problem_without_details(send: Send) -> None:
    response = send("POST", "/break")
    _assert_problem(response, 500, "internal")
    assert "secret" not in response.text


@pytest.mark.parametrize("path", ["/echo/a", "/cold/1"])
def test_declared_length_over_the_limit_is_refused(send: Send, path: str) -> None:
    method = "POST" if path.startswith("/echo") else "PUT"
    _assert_problem(send(method, path, content=b"x" * 70_000), 413, "body-too-large")


def test_undeclared_length_over_the_limit_is_refused(send: Send) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(10):
            yield b"x" * 1000

    _assert_problem(send("POST", "/echo/a", content=chunks()), 413, "body-too-large")


def test_wrong_parameter_is_400_and_wrong_body_422(send: Send) -> None:
    _assert_problem(send("GET", "/cold/abc"), 400, "bad-parameter")
    _assert_problem(send("PUT", "/cold/1", json={"a": "b"}), 422, "body-invalid")
    broken = send("PUT", "/cold/1", content=b"{", headers={"content-type": "application/json"})
    _assert_problem(broken, 400, "bad-json")


def test_deeply_nested_body_is_a_problem(send: Send) -> None:
    headers = {"content-type": "application/json"}
    response = send("PUT", "/cold/1", content=b"[" * 4_000, headers=headers)
    _assert_problem(response, 400, "bad-json")


def test_unknown_path_and_method_are_problems(send: Send) -> None:
    for path in ("/nowhere", "/cold/1/", "/cold", "//cold/1"):
        _assert_problem(send("GET", path), 404, "not-found")
    _assert_problem(send("GET", "/static-offline-docs/nothing"), 404, "not-found")


@pytest.mark.parametrize(
    ("path", "allowed"),
    [("/cold/1", "GET, HEAD, PUT"), ("/echo/a", "POST"), ("/static-offline-docs/a", "GET, HEAD")],
)
@pytest.mark.parametrize("method", ["DELETE", "OPTIONS", "PATCH", "BREW"])
def test_method_that_is_not_offered_gets_the_list_of_methods(
    send: Send, method: str, path: str, allowed: str
) -> None:
    response = send(method, path)
    _assert_problem(response, 405, "method-not-allowed")
    assert response.headers["allow"] == allowed


def test_head_is_answered_as_get(send: Send) -> None:
    assert send("HEAD", "/cold/1").headers["content-length"] == "1"
    assert send("HEAD", "/nowhere").status_code == 404


@pytest.mark.parametrize("query", ["ad=1", "add=1&ad=2", "add=1&add=2", "ADD=1"])
def test_parameter_that_would_be_overlooked_is_refused(send: Send, query: str) -> None:
    assert send("GET", "/cold/1?add=2").json() == 3
    _assert_problem(send("GET", f"/cold/1?{query}"), 400, "bad-parameter")


@pytest.mark.parametrize("content_type", ["text/plain", "", "application/x-www-form-urlencoded"])
def test_body_that_is_not_said_to_be_json_is_415(send: Send, content_type: str) -> None:
    response = send("PUT", "/cold/1", content=b"{}", headers={"content-type": content_type})
    _assert_problem(response, 415, "unsupported-media-type")
    assert "application/json" in response.json()["detail"]


def test_the_address_alone_leads_to_the_api_page(send: Send) -> None:
    assert send("GET", "/").headers["location"] == "/docs"


def test_hot_and_cold_routes_are_in_one_openapi_document(send: Send) -> None:
    document = send("GET", "/openapi.json").json()
    assert "post" in document["paths"]["/echo/{name}"]
    assert set(document["paths"]["/cold/{number}"]) == {"get", "put"}
    assert "HTTPValidationError" not in str(document)
    assert [tag["name"] for tag in document["tags"]] == ["numbers", "operations"]


def test_api_pages_load_nothing_from_other_hosts(send: Send) -> None:
    page = send("GET", "/docs").text
    assert "https://" not in page


def test_metrics_count_by_template_not_by_path(send: Send) -> None:
    send("POST", "/echo/a-name-of-a-client")
    text = send("GET", "/metrics").text
    assert 'mqstore_http_requests_total{method="POST",route="/echo/{name}",status="201"}' in text
    assert "a-name-of-a-client" not in text


@pytest.mark.parametrize(
    ("method", "path", "content"),
    [
        ("GET", "/v1/cold?unknown=1", None),
        ("GET", "/v1/cold?number=x", None),
        ("GET", "/v1/cold?number=1&number=2", None),
        ("PUT", "/v1/cold", b"x" * (BODY_MAX + 1)),
        ("PUT", "/v1/cold", b'"\\ud800"'),
        ("PUT", "/v1/cold", b"no JSON"),
    ],
)
def test_a_request_without_a_valid_token_learns_nothing_else(
    method: str, path: str, content: bytes | None
) -> None:
    settings = load(max_request_size=BODY_MAX, token_admin="a" * 16)
    api = Api(settings, Health(), title="test", description="A test.", tags={})

    async def cold(number: int = 0) -> int:
        return number

    for each in ("GET", "PUT"):
        api.add_cold(
            "/v1/cold", cold, role=Role.CONSUME, documented=dict, name=each, methods=[each]
        )
    transport = httpx.ASGITransport(app=api.front())

    async def call(token: str) -> httpx.Response:
        headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            return await http.request(method, path, content=content, headers=headers)

    _assert_problem(asyncio.run(call("b" * 16)), 401, "unauthenticated")
    assert asyncio.run(call("a" * 16)).status_code != 401


@pytest.mark.parametrize(("method", "path"), [("POST", "/echo/a"), ("PUT", "/cold/1")])
@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "gzip, identity"])
def test_a_compressed_request_is_refused_as_such(
    send: Send, method: str, path: str, coding: str
) -> None:
    headers = {"content-encoding": coding, "content-type": "application/json"}
    response = send(method, path, content=gzip.compress(b"{}"), headers=headers)
    _assert_problem(response, 415, "unsupported-media-type")
    assert response.headers["accept-encoding"] == "identity"
    assert "send the body as it is" in response.json()["detail"]


def test_a_request_that_is_said_to_be_as_it_is_is_read(send: Send) -> None:
    response = send("POST", "/echo/a", content=b"x", headers={"content-encoding": "identity"})
    assert response.content == b"x"


@pytest.mark.parametrize("path", ["/v1/large", "/v1/listed"])
def test_a_large_reply_is_compressed_on_request(send: Send, path: str) -> None:
    plain = send("GET", path, headers={"accept-encoding": "identity"})
    assert "content-encoding" not in plain.headers
    found = send("GET", path, headers={"accept-encoding": "br, gzip;q=0.5"})
    assert found.headers["content-encoding"] == "gzip"
    assert found.headers["vary"] == "accept-encoding"
    assert int(found.headers["content-length"]) * 10 < len(plain.content)
    assert found.content == plain.content
    assert "x-request-id" in found.headers


@pytest.mark.parametrize(
    ("path", "accepts"),
    [
        *(("/v1/large", each) for each in ("identity", "gzip;q=0", "gzip;q=0.0", "br", "xgzip")),
        ("/large", "gzip"),  # needs no token
        ("/v1/large?a=1", "gzip"),  # has an etag of its bytes
        ("/v1/streamed", "gzip"),
        ("/cold/1", "gzip"),
    ],
)
def test_other_replies_are_sent_as_they_are(send: Send, path: str, accepts: str) -> None:
    found = send("GET", path, headers={"accept-encoding": accepts})
    assert found.status_code == 200
    assert "content-encoding" not in found.headers


def test_the_page_of_the_api_runs_its_own_scripts_only(send: Send) -> None:
    page = send("GET", "/docs")
    policy = page.headers["content-security-policy"]
    (script,) = re.findall("<script>(.*?)</script>", page.text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'self' 'sha256-{digest}';" in policy
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "http:" not in page.text.replace("http://localhost", "")
    assert "https:" not in page.text
