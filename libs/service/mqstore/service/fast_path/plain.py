"""Heads of plain requests: GET or POST in a simple form, parsed once for each different head.

Clients repeat the same head with another content-length, so parsed heads are cached; if only the
path differs, the parsed header fields are. llhttp parses the fields, as for uvicorn: a head that
uvicorn would reject or parse in another way is not plain.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NamedTuple

import httptools

from mqstore.storage.exchanges import RepeatedHead

HEAD_SIZE_MAX: Final = 2048
"""Maximum size in bytes of a plain head."""
CACHE_SIZE: Final = 1024
"""Maximum number of cached heads."""
_LINE: Final = re.compile(
    rb"(GET|POST) (/[A-Za-z0-9._~|:/-]*)(?:\?([A-Za-z0-9._~|=&%+,:@/*-]*))? HTTP/1\.1"
)
_ODD: Final = frozenset(
    {b"content-encoding", b"content-length", b"expect", b"origin", b"transfer-encoding", b"upgrade"}
)
"""Header fields of requests that are not plain: they change the exchange or the reply's header, or
repeat the length."""
GIVEN_ONCE: Final = (b"host", b"authorization")
"""Header fields that authenticate a request or name its service: a second one is ambiguous."""
_END: Final = b"\r\n\r\n"
LENGTH_DIGITS_MAX: Final = 9
"""Digits of a content-length that may be plain."""
_LENGTH: Final = re.compile(
    rb"\r\ncontent-length: *([0-9]{1,%d})(?=\r\n)" % LENGTH_DIGITS_MAX, re.IGNORECASE
)


_NUMBERED: Final = re.compile(
    rb"(GET /[^? ]*\?(?:[^ ]*&)?(?:offset|timestamp)=)([0-9]{1,18})([& ].*)", re.DOTALL
)
"""A request whose query has a number in which requests to a lane differ."""
_IDENTIFIED: Final = re.compile(rb"(GET /[^? ]*/)([0-9A-Fa-f]{32})([? ].*)", re.DOTALL)
"""A request whose path ends with an offset message id, in which requests to a lane differ."""
_NAMED: Final = re.compile(
    rb"(POST /[^? ]*/)([A-Za-z0-9._~-]{1,255})(:[a-z]+ HTTP/1\.1\r\n.*)", re.DOTALL
)
"""A request for an action on what its path names last, in which requests to a lane differ."""


class Head:
    """The head of a plain request without its content-length.

    Equal heads are the same object while it is cached.
    """

    __slots__ = ("fields", "headers", "method", "path", "query")

    def __init__(
        self,
        method: str,
        path: str,
        query: bytes,
        fields: bytes,
        headers: list[tuple[bytes, bytes]],
    ) -> None:
        self.method = method
        self.path = path
        self.query = query
        self.fields = fields
        """The header fields as received."""
        self.headers = headers
        """Names in lower case, and values. Shared: do not change it."""


def split_value(data: bytes) -> tuple[tuple[bytes, bytes], bytes] | None:
    """Split a request into what is before and after the value in which requests to a lane differ,
    and that value; None without one."""
    if data.startswith(b"POST"):
        found = _NAMED.fullmatch(data)
    else:
        found = _NUMBERED.fullmatch(data) or _IDENTIFIED.fullmatch(data)
    return None if found is None else ((found[1], found[3]), found[2])


class PlainRequest(NamedTuple):
    """A plain request whose head is complete."""

    head: Head
    body_at: int
    end: int
    """Bytes of the head and the body."""
    repeated: RepeatedHead | None = None
    """Its head, where it has a content-length."""

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """The header fields, with the content-length of a body."""
        headers, size = self.head.headers, self.end - self.body_at
        return [*headers, (b"content-length", b"%d" % size)] if size else headers


def read(data: bytes) -> PlainRequest | None:
    """Parse the request at the beginning of ``data``; None if it is not plain, or if its head is
    incomplete."""
    head_end = data.find(_END, 0, HEAD_SIZE_MAX)
    if head_end < 0:
        return None
    body_at = head_end + 4
    length = _LENGTH.search(data, 0, head_end + 2)
    if length is None:
        head = _read(data[:body_at])
        return None if head is None else PlainRequest(head, body_at, body_at)
    size, head = int(length[1]), _read(data[: length.start()] + data[length.end() : body_at])
    if head is None or (size and head.method == "GET"):
        return None
    repeated = RepeatedHead(data[: length.start(1)], data[length.end(1) : body_at])
    return PlainRequest(head, body_at, body_at + size, repeated)


@lru_cache(maxsize=CACHE_SIZE)
def _read(text: bytes) -> Head | None:
    """Parse a head without its content-length; None if it is not plain."""
    line, _, fields = text.partition(b"\r\n")
    match = _LINE.fullmatch(line)
    headers = None if match is None else _read_fields(fields)
    if match is None or headers is None:
        return None
    method, path, query = match.groups(b"")
    return Head(method.decode(), path.decode(), query, fields, headers)


@lru_cache(maxsize=CACHE_SIZE)
def _read_fields(text: bytes) -> list[tuple[bytes, bytes]] | None:
    """Parse header fields and the empty line after them; None if the request is not plain."""
    found = _Found()
    parser = httptools.HttpRequestParser(found)
    try:
        parser.feed_data(b"POST / HTTP/1.1\r\n" + text)
    except (httptools.HttpParserError, httptools.HttpParserUpgrade):
        return None
    if not parser.should_keep_alive() or not found.is_one_head:
        return None
    names = [name for name, _ in found.headers]
    if not _ODD.isdisjoint(names) or any(names.count(name) > 1 for name in GIVEN_ONCE):
        return None
    if found.connection not in ([], [b"keep-alive"]):
        return None
    return found.headers


class _Found:
    """The callbacks of httptools."""

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
    def connection(self) -> list[bytes]:
        return [value.lower() for name, value in self.headers if name == b"connection"]
