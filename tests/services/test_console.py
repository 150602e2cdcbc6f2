"""The console over HTTP: its files, the access of a token, and what query forwards."""

from __future__ import annotations

import gzip
from collections.abc import Iterator

import httpx
import pytest

from mqstore.client import Client
from tests.services.console_browser import TOKENS
from tests.services.service_processes import ServicePair, service_pair
from tests.services.shard_processes import Cluster

WRITER_PATHS = ("/ui/writer/v1/topics", "/ui/writer/v1/store", "/ui/writer/v1/store/retention")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServicePair]:
    with service_pair(tmp_path_factory.mktemp("console") / "store", **TOKENS) as found:
        yield found


def _headers(role: str, **more: str) -> dict[str, str]:
    return {"authorization": f"Bearer {role}-token-of-tests", **more}


# files --------------------------------------------------------------------------------------


def test_the_files_need_no_token_and_forbid_scripts_of_others(pair: ServicePair) -> None:
    redirected = httpx.get(f"{pair.query_url}/ui")
    assert (redirected.status_code, redirected.headers["location"]) == (307, "ui/")
    for path in ("/ui/", "/ui/overview", "/ui/app.js", "/ui/style/base.css", "/ui/icon.svg"):
        found = httpx.get(pair.query_url + path)
        assert found.status_code == 200, path
        policy = found.headers["content-security-policy"].split("; ")
        assert {"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'"} <= set(policy)
        assert "unsafe" not in found.headers["content-security-policy"]
        assert found.headers["x-content-type-options"] == "nosniff"


def test_a_browser_that_has_a_file_gets_no_second_copy(pair: ServicePair) -> None:
    url = f"{pair.query_url}/ui/app.js"
    for encoding in ("identity", "gzip"):
        first = httpx.get(url, headers={"accept-encoding": encoding})
        assert first.headers.get("content-encoding", "identity") == encoding
        held = {"accept-encoding": encoding, "if-none-match": first.headers["etag"]}
        again = httpx.get(url, headers=held)
        assert (again.status_code, again.content) == (304, b"")
        assert first.headers["etag"].startswith('"')
    with httpx.stream("GET", url, headers={"accept-encoding": "gzip"}) as compressed:
        assert gzip.decompress(b"".join(compressed.iter_raw())) == first.content


@pytest.mark.parametrize(
    "path", ["none.js", "vendor/htm.LICENSE", "../routes.py", "%2e%2e/relay.py"]
)
def test_nothing_else_is_served(pair: ServicePair, path: str) -> None:
    assert httpx.get(f"{pair.query_url}/ui/{path}").status_code == 404


# access -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("role", "allows"),
    [
        ("produce", ["produce"]),
        ("consume", ["consume"]),
        ("admin", ["admin", "consume", "produce"]),
        ("system", ["admin", "consume", "produce", "system"]),
    ],
)
def test_access_names_the_roles_of_a_token(pair: ServicePair, role: str, allows: list[str]) -> None:
    with pair.client(token=f"{role}-token-of-tests") as client:
        found = client.access()
    assert (found.token_needed, list(found.roles), list(found.allows)) == (True, [role], allows)


def test_access_without_a_valid_token_is_refused(pair: ServicePair) -> None:
    url = f"{pair.query_url}/v1/access"
    assert httpx.get(url).status_code == 401
    assert httpx.get(url, headers=_headers("wrong")).status_code == 401


def test_all_is_allowed_where_there_are_no_tokens(shards: Cluster) -> None:
    with shards.client() as client:
        found = client.access()
    assert (found.token_needed, found.roles) == (False, ())
    assert {"admin", "consume", "produce"} < set(found.allows)


# what is forwarded --------------------------------------------------------------------------


def test_an_operation_of_the_writer_is_forwarded_with_the_token(pair: ServicePair) -> None:
    url = f"{pair.query_url}/ui/writer/v1/topics/made"
    assert httpx.put(url, json={"queues": 2}, headers=_headers("consume")).status_code == 403
    assert httpx.put(url, json={"queues": 2}, headers=_headers("admin")).status_code == 201
    found = httpx.get(url, headers=_headers("consume")).json()
    assert (found["topic"], found["queues"]) == ("made", 2)
    refused = httpx.put(url, json={"queues": 0}, headers=_headers("admin"))
    assert refused.status_code == 422
    assert refused.headers["content-type"] == "application/problem+json"


def test_a_forwarded_body_is_bounded(pair: ServicePair) -> None:
    url = f"{pair.query_url}/ui/writer/v1/topics/made/messages"
    message = {"messages": [{"body": "x" * (64 << 10)}]}
    assert httpx.post(url, json=message, headers=_headers("produce")).status_code == 413


@pytest.mark.parametrize("path", WRITER_PATHS)
def test_nothing_is_forwarded_without_a_token(pair: ServicePair, path: str) -> None:
    assert httpx.get(pair.query_url + path).status_code == 401
    assert httpx.get(pair.query_url + path, headers=_headers("produce")).status_code == 403
    assert httpx.get(pair.query_url + path, headers=_headers("consume")).status_code == 200


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/internal/offsets"),
        ("POST", "/v1/internal/damage"),
        ("POST", "/v1/index-rebuilds"),
        ("GET", "/metrics"),
        ("GET", "/docs"),
        ("DELETE", "/v1/topics"),
    ],
)
def test_only_operations_for_applications_are_forwarded(
    pair: ServicePair, method: str, path: str
) -> None:
    url = f"{pair.query_url}/ui/writer{path}"
    assert httpx.request(method, url, headers=_headers("system")).status_code == 404


def test_a_page_of_another_site_cannot_send_through_the_console(pair: ServicePair) -> None:
    url = f"{pair.query_url}/ui/writer/v1/topics/crossed"
    sent = _headers("admin") | {"sec-fetch-site": "cross-site"}
    assert httpx.put(url, json={}, headers=sent).status_code == 403
    sent["sec-fetch-site"] = "same-origin"
    assert httpx.put(url, json={}, headers=sent).status_code == 201


def test_events_are_forwarded_while_they_happen(pair: ServicePair) -> None:
    url = f"{pair.query_url}/ui/writer/v1/events"
    with (
        httpx.stream("GET", url, headers=_headers("consume")) as events,
        pair.client(token="admin-token-of-tests") as client,
    ):
        client.create_topic("streamed")
        lines = events.iter_lines()
        assert any('"topic":"streamed"' in line for line in lines)


def test_metrics_of_each_service_of_each_shard_are_forwarded(shards: Cluster) -> None:
    with shards.client() as client:
        client.create_topic("t")
    url = f"{shards.shards[0].query.url}/ui/metrics"
    for shard in (0, 1):
        for target, metric in (("writer", "mqstore_store_open"), ("query", "mqstore_open_polls")):
            found = httpx.get(f"{url}/{target}", params={"shard": shard})
            assert found.status_code == 200
            assert f"\n{metric} " in found.text
    assert httpx.get(f"{url}/query", params={"shard": 7}).status_code == 404
    assert httpx.get(f"{url}/coordinator").status_code == 404


def test_metrics_need_a_token(pair: ServicePair) -> None:
    assert httpx.get(f"{pair.query_url}/ui/metrics/writer").status_code == 401


def test_another_shard_replies_while_the_writer_of_this_one_is_down(shards: Cluster) -> None:
    with shards.client() as client:
        client.create_topic("kept")
    url = f"{shards.shards[0].query.url}/ui/writer/v1"
    shards.shards[0].writer.kill()
    try:
        assert httpx.get(f"{url}/topics/kept").json()["topic"] == "kept"
        named = httpx.get(f"{url}/store", params={"shard": 0})
        assert named.status_code == 503
        assert named.json()["shard"] == 0
        assert httpx.get(f"{url}/store", params={"shard": 1}).status_code == 503
    finally:
        shards.restart_writer(0)
        shards.shards[0].await_status("ready")


def test_a_client_may_not_name_a_path_that_climbs(pair: ServicePair) -> None:
    with Client(pair.writer_url, pair.query_url, token="admin-token-of-tests") as client:
        client.create_topic("plain")
    for path in ("v1/topics/plain/../../internal/offsets", "v1//topics", "v1/topics/a%2Fb"):
        url = f"{pair.query_url}/ui/writer/{path}"
        assert httpx.get(url, headers=_headers("admin")).status_code == 404
