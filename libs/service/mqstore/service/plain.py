"""Heads of plain requests: a known form, read once for each that differs.

Clients send the same lines again and again, so what was read is kept. llhttp reads header fields
here as it does for uvicorn: nothing is plain that uvicorn would refuse or read in another way.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

import httptools

HEAD_SIZE_MAX: Final = 2048
"""Bytes of a head that may be plain."""
KEPT: Final = 1024
"""How many request lines, and how many runs of header fields, are kept."""
_LINE: Final = re.compile(
    rb"(GET|POST) (/[A-Za-z0-9._~|:/-]*)(?:\?([A-Za-z0-9._~|=&%+,:@/*-]*))? HTTP/1\.1"
)
_ODD: Final = frozenset({b"expect", b"transfer-encoding", b"upgrade"})
"""Header fields that ask for more than an answer."""
_END: Final = b"\r\n\r\n"


class PlainRequest(NamedTuple):
    """What the head of a plain request says."""

    method: str
    path: str
    query: bytes
    headers: list[tuple[bytes, bytes]]
    """Names in lower case. Shared by all requests with the same fields: nobody changes it."""
    body_at: int
    end: int
    """Bytes from the head's first to the body's last."""


def read(data: bytes) -> PlainRequest | None:
    """The request that begins with the first of these bytes; None when it is not plain, or when its
    head is not whole."""
    head_end = data.find(_END, 0, HEAD_SIZE_MAX)
    if head_end < 0:
        return None
    line_end = data.find(b"\r\n", 0, head_end + 2)
    line = _read_line(data[:line_end])
    fields = _read_fields(data[line_end + 2 : head_end + 4])
    if line is None or fields is None or (fields.body_size and line[0] == "GET"):
        return None
    body_at = head_end + 4
    return PlainRequest(*line, fields.headers, body_at, body_at + fields.body_size)


@dataclass(frozen=True, slots=True)
class _Fields:
    headers: list[tuple[bytes, bytes]]
    body_size: int


@lru_cache(maxsize=KEPT)
def _read_line(line: bytes) -> tuple[str, str, bytes] | None:
    match = _LINE.fullmatch(line)
    if match is None:
        return None
    method, path, query = match.groups(b"")
    return method.decode(), path.decode(), query


@lru_cache(maxsize=KEPT)
def _read_fields(text: bytes) -> _Fields | None:
    """``text`` is every header field, and the empty line."""
    found = _Found()
    parser = httptools.HttpRequestParser(found)
    try:
        parser.feed_data(b"POST / HTTP/1.1\r\n" + text)
    except (httptools.HttpParserError, httptools.HttpParserUpgrade):
        return None
    if not parser.should_keep_alive() or not found.is_one_head:
        return None
    names = {name for name, _ in found.headers}
    if names & _ODD or found.connection not in ([], [b"keep-alive"]):
        return None
    return _Fields(found.headers, found.body_size)


class _Found:
    """What httptools calls."""

    def __init__(self) -> None:
        self.headers: list[tuple[bytes, bytes]] = []
        self._begun = 0
        self._heads = 0

    def on_message_begin(self) -> None:
        self._begun += 1

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self._heads += 1

    @property
    def is_one_head(self) -> bool:
        return self._begun == self._heads == 1

    @property
    def body_size(self) -> int:
        return sum(int(value) for name, value in self.headers if name == b"content-length")

    @property
    def connection(self) -> list[bytes]:
        return [value.lower() for name, value in self.headers if name == b"connection"]
