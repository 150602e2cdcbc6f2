"""Segments over HTTP: ranges, checksums, entity tags."""

from __future__ import annotations

import base64

import httpx
import pytest

from mqstore.client import Client, NewMessage, ProblemError
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
    checksums = part.headers["x-mqstore-block-crc32c"].split(",")
    blocks = [part.content[:65536], part.content[65536:]]
    assert len(checksums) == 2
    for one, block in zip(checksums, blocks, strict=True):
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


def test_client_copies_the_log_in_parts_that_fit_together(client: Client, topic: str) -> None:
    (placed,) = client.produce(topic, [NewMessage(body="x" * 5_000)], durability="sync").messages
    first = client.log_files().segments[0]
    assert first.size > placed.physical_offset
    part = client.log_bytes(first.name, 0, 1_000)
    rest = client.log_bytes(first.name, 1_000, first.size, tag=part.tag)
    copied = part.content + rest.content
    assert (len(copied), rest.tag) == (min(first.size, 1_000 + (16 << 20)), part.tag)
    at = placed.physical_offset
    assert int.from_bytes(copied[at : at + 4]) == placed.size
    with pytest.raises(ProblemError) as caught:
        client.log_bytes(first.name, 0, 10, tag='"0-other"')
    assert caught.value.type == "epoch-changed"


def test_client_downloads_bodies_whole_and_in_part(client: Client, topic: str) -> None:
    body = bytes(range(256)) * 4
    (placed,) = client.produce(topic, [NewMessage(body=body)]).messages
    whole = client.message_body(placed.offset_msg_id)
    assert (whole.content, whole.total) == (body, len(body))
    part = client.message_body(placed.uniq_key, topic=topic, start=100, stop=200)
    assert (part.content, part.total) == (body[100:200], len(body))
    assert client.message_body(placed.offset_msg_id, start=1_000).content == body[1_000:]
