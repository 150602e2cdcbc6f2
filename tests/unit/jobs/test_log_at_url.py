"""A shard by its address: transient failures are retried, others are an error of one line."""

from __future__ import annotations

import threading
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from crc32c import crc32c

from mqstore.client import Client
from mqstore.jobs.errors import AccessRefused, JobError, SegmentGone, StoreChanged, Unreachable
from mqstore.jobs.log import at_url
from mqstore.jobs.log.at_url import LogAtUrl, UrlReader
from mqstore.jobs.log.source import LogSegment

SEGMENT = LogSegment("0" * 20, 0, 0, 100)
BYTES = bytes(range(100))

Answer = tuple[int, dict[str, str], bytes]
Answers = Callable[[BaseHTTPRequestHandler], Answer]


@contextmanager
def served(answers: Answers) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, headers, body = answers(self)
            self.send_response(status)
            for name, value in {"content-length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def part(request: BaseHTTPRequestHandler, most: int = 100) -> Answer:
    """As query answers a range, at most so many bytes at a time."""
    first, last = map(int, request.headers["range"].removeprefix("bytes=").split("-"))
    body = BYTES[first : min(last + 1, first + most)]
    digest = b64encode(crc32c(body).to_bytes(4)).decode()
    headers = {
        "content-range": f"bytes {first}-{first + len(body) - 1}/100",
        "content-digest": f"crc32c=:{digest}:",
        "etag": '"1-x"',
    }
    return 206, headers, body


def problem(kind: str, status: int, **headers: str) -> Answer:
    body = f'{{"type": "urn:mqstore:problem:{kind}", "detail": "because"}}'.encode()
    return status, headers, body


class Failing:
    """Answers with each of these once, then as it should."""

    def __init__(self, *answers: Answer) -> None:
        self.left = list(answers)
        self.requests = 0
        self.tags: list[str | None] = []

    def __call__(self, request: BaseHTTPRequestHandler) -> Answer:
        self.requests += 1
        self.tags.append(request.headers["if-match"])
        return self.left.pop(0) if self.left else part(request, 40)


def read(answers: Answers) -> tuple[bytes, list[float]]:
    waited: list[float] = []
    with served(answers) as url, Client(query_url=url) as client:
        return UrlReader(url, client, sleep=waited.append).read(SEGMENT, 10, 90), waited


def test_a_read_is_put_together_from_as_many_answers_as_it_takes() -> None:
    answers = Failing()
    assert read(answers) == (BYTES[10:100], [])
    assert answers.tags == [None, '"1-x"', '"1-x"']


def test_a_transient_failure_is_retried_later_each_time() -> None:
    found, waited = read(Failing(*[problem("overloaded", 503)] * 4))
    assert found == BYTES[10:100]
    assert len(waited) == 4
    assert all(0.1 * 2**n <= wait <= 0.2 * 2**n for n, wait in enumerate(waited))


def test_a_service_says_itself_when_it_takes_more() -> None:
    headers = {"retry-after": "3"}
    assert read(Failing(problem("rate-limited", 429, **headers)))[1] == [3.0]


def test_bytes_with_a_wrong_checksum_are_requested_again() -> None:
    status, headers = 206, {"content-digest": "crc32c=:AAAAAA==:"}
    assert read(Failing((status, headers, BYTES[10:50])))[0] == BYTES[10:100]


def test_a_service_that_never_answers_is_an_error() -> None:
    answers = Failing(*[problem("overloaded", 503)] * at_url.TRIES)
    with pytest.raises(Unreachable, match="too much to do") as caught:
        read(answers)
    assert caught.value.exit_code == 3
    assert answers.requests == at_url.TRIES


@pytest.mark.parametrize(
    ("kind", "status", "error"),
    [
        ("unauthenticated", 401, AccessRefused),
        ("forbidden", 403, AccessRefused),
        ("segment-expired", 410, SegmentGone),
        ("segment-unknown", 404, SegmentGone),
        ("epoch-changed", 412, StoreChanged),
        ("bad-parameter", 400, JobError),
    ],
)
def test_a_permanent_failure_is_reported_at_once(
    kind: str, status: int, error: type[JobError]
) -> None:
    answers = Failing(problem(kind, status))
    with pytest.raises(error):
        read(answers)
    assert answers.requests == 1


def test_an_address_without_a_service_is_an_error_after_a_few_tries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(at_url, "WAIT_FIRST_S", 0.001)
    with served(part) as url:
        pass
    with pytest.raises(Unreachable, match=f"{url} does not answer"):
        at_url.look(LogAtUrl(url, None, None))


def test_the_token_comes_from_a_file_or_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str | None] = []

    def answers(request: BaseHTTPRequestHandler) -> Answer:
        seen.append(request.headers["authorization"])
        return 200, {}, b'{"epoch": 1, "shard": 0, "segments": []}'

    token = tmp_path / "token"
    token.write_text("filed\n")
    with served(answers) as url:
        at_url.look(LogAtUrl(url, str(token), None))
        monkeypatch.setenv("MQSTORE_TOKEN", "from-environment")
        at_url.look(LogAtUrl(url, None, None))
        monkeypatch.setenv("MQSTORE_TOKEN_FILE", str(token))
        at_url.look(LogAtUrl(url, None, None))
    assert seen == ["Bearer filed", "Bearer from-environment", "Bearer filed"]


def test_a_token_file_that_is_not_there_or_holds_none_is_named(tmp_path: Path) -> None:
    with pytest.raises(AccessRefused, match="missing"):
        at_url.look(LogAtUrl("http://127.0.0.1:1", str(tmp_path / "missing"), None))
    for content in (b"", "tökén".encode(), b"\x7fELF\xd0"):
        (tmp_path / "odd").write_bytes(content)
        with pytest.raises(AccessRefused, match="holds no token"):
            at_url.look(LogAtUrl("http://127.0.0.1:1", str(tmp_path / "odd"), None))
