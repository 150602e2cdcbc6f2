"""Segments over HTTP: ranges, checksums, entity tags."""

from __future__ import annotations

import base64

import httpx
import pytest

from mqstore.client import Client, NewMessage
from mqstore.storage._kernel import crc32c
from mqstore.storage.paths import segment_name
from tests.services.service_processes import Run

FIRST = "/v1/segments/" + segment_name(0)


@pytest.fixture
def url(services: Run, client: Client, topic: str) -> str:
    client.produce(topic, [NewMessage(body="x" * 300_000)], durability="sync")
    return services.query_url


def test_whole_segment_is_the_ranges_of_it_put_together(url: str) -> None:
    listed = httpx.get(f"{url}/v1/segments").json()["segments"][0]
    assert (listed["name"], listed["offset"]) == (segment_name(0), 0)
    whole = httpx.get(url + FIRST)
    assert whole.status_code == 200
    assert len(whole.content) >= listed["size"]
    tag, data, at = whole.headers["etag"], b"", 0
    while at < listed["size"]:
        headers = {"range": f"bytes={at}-{at + 99_999}", "if-match": tag}
        part = httpx.get(url + FIRST, headers=headers)
        assert part.status_code == 206
        digest = base64.b64encode(crc32c(part.content).to_bytes(4)).decode()
        assert part.headers["content-digest"] == f"crc32c=:{digest}:"
        data, at = data + part.content, at + len(part.content)
    assert data[: listed["size"]] == whole.content[: listed["size"]]


def test_blocks_of_a_range_have_the_checksums_of_the_log(url: str) -> None:
    part = httpx.get(url + FIRST, headers={"range": "bytes=65536-196607"})
    told = part.headers["x-mqstore-block-crc32c"].split(",")
    blocks = [part.content[:65536], part.content[65536:]]
    assert len(told) == 2
    for one, block in zip(told, blocks, strict=True):
        assert one in ("-", f"{crc32c(block):08x}")


@pytest.mark.parametrize(
    ("path", "headers", "status", "kind"),
    [
        ("/v1/segments/x", {}, 404, "segment-unknown"),
        ("/v1/segments/" + segment_name(1 << 50), {}, 404, "segment-unknown"),
        (FIRST, {"range": f"bytes={1 << 40}-"}, 416, "range-not-satisfiable"),
        (FIRST, {"if-match": '"0-x"'}, 412, "epoch-changed"),
        (FIRST + "?part=1", {}, 400, "bad-parameter"),
    ],
)
def test_segment_that_cannot_be_had_is_a_problem(
    url: str, path: str, headers: dict[str, str], status: int, kind: str
) -> None:
    response = httpx.get(url + path, headers=headers)
    assert (response.status_code, response.json()["type"]) == (
        status,
        f"urn:mqstore:problem:{kind}",
    )
