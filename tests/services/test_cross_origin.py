"""Requests of web pages from other origins, as browsers send them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests import forked_processes
from tests.services.service_processes import Process, environment, writer

PAGE = "https://console.example.com"
OTHER = "https://evil.example"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    store = tmp_path_factory.mktemp("cross-origin") / "store"
    with writer(store, cors_allowed_origins=f"{PAGE} http://localhost:3000") as process:
        httpx.put(f"{process.url}/v1/topics/t", json={"queues": 1})
        yield process


def _produce(process: Process, origin: str | None) -> httpx.Response:
    headers = {} if origin is None else {"Origin": origin}
    message = {"messages": [{"body": "x"}]}
    return httpx.post(f"{process.url}/v1/topics/t/messages", json=message, headers=headers)


def _preflight(process: Process, origin: str, method: str = "POST") -> httpx.Response:
    headers = {
        "Origin": origin,
        "Access-Control-Request-Method": method,
        "Access-Control-Request-Headers": "authorization, content-type, idempotency-key",
    }
    return httpx.options(f"{process.url}/v1/topics/t/messages", headers=headers)


def test_a_page_of_an_allowed_origin_may_send_and_read_the_reply(served: Process) -> None:
    preflight = _preflight(served, PAGE)
    assert (preflight.status_code, preflight.headers["access-control-allow-origin"]) == (200, PAGE)
    assert "POST" in preflight.headers["access-control-allow-methods"]
    assert "idempotency-key" in preflight.headers["access-control-allow-headers"].lower()
    for origin in (PAGE, "http://localhost:3000"):
        done = _produce(served, origin)
        assert (done.status_code, done.headers["access-control-allow-origin"]) == (201, origin)
        assert done.headers["vary"] == "Origin"
        assert "X-Request-Id" in done.headers["access-control-expose-headers"]
        assert "access-control-allow-credentials" not in done.headers


def test_a_problem_can_be_read_by_the_page_too(served: Process) -> None:
    url = f"{served.url}/v1/topics/unknown"
    refused = httpx.get(url, headers={"Origin": PAGE})
    assert (refused.status_code, refused.headers["access-control-allow-origin"]) == (404, PAGE)


def test_a_page_of_another_origin_gets_no_permission(served: Process) -> None:
    assert _preflight(served, OTHER).status_code == 400
    assert "access-control-allow-origin" not in _produce(served, OTHER).headers


def test_a_request_without_an_origin_has_no_such_headers(served: Process) -> None:
    done = _produce(served, None)
    assert done.status_code == 201
    assert not [name for name in done.headers if name.startswith("access-control")]


def test_no_page_has_permission_by_default(tmp_path: Path) -> None:
    with writer(tmp_path / "store") as process:
        httpx.put(f"{process.url}/v1/topics/t", json={"queues": 1})
        assert "access-control-allow-origin" not in _produce(process, PAGE).headers
        assert _preflight(process, PAGE).status_code == 405


@pytest.mark.parametrize(
    ("origins", "why"),
    [
        ("*", "set tokens"),
        ("console.example.com", "write it as https://console.example.com"),
        (f"{PAGE}/", "without a path"),
        (f"{PAGE} *", "or * alone"),
    ],
)
def test_all_pages_without_tokens_and_what_is_no_origin_are_refused(
    tmp_path: Path, origins: str, why: str
) -> None:
    given = environment(store=tmp_path / "store", writer_port=0, cors_allowed_origins=origins)
    ended = forked_processes.start("mqstore.writer", environment=given)
    _, errors = ended.communicate(timeout=60)
    assert ended.wait() == 2
    assert why in errors
