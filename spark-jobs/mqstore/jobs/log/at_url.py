"""Reads the log of a shard from its query service: byte ranges over HTTP, checked and retried.

Query serves only bytes that are synced to disk. It rejects requests when it is overloaded, and
delays replies to keep its transfer rate. The token comes from a file or the environment of each
machine that reads; Spark would show an option to every user.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from mqstore.client import WRITER_URL, Client, ClientError, ProblemError, make_tls_context
from mqstore.client import Unreachable as NoAnswer
from mqstore.jobs.errors import AccessRefused, JobError, SegmentGone, StoreChanged, Unreachable
from mqstore.jobs.log.source import LogSegment, Snapshot

T = TypeVar("T")

TRIES: Final = 8
FIRST_TRIES: Final = 4
"""Attempts of the first request: the job reports a mistyped address within seconds."""
WAIT_FIRST_S: Final = 0.1
WAIT_MAX_S: Final = 10.0
TIMEOUT_S: Final = 60.0
"""Timeout of a request: a service with a limited transfer rate replies slowly."""
_TRANSIENT: Final = frozenset({429, 502, 503, 504})
"""Status codes after which the same request may succeed."""


@dataclass(frozen=True, slots=True)
class LogAtUrl:
    """A log as a query service: its address, token file and CA bundle (PEM)."""

    url: str
    token_file: str | None
    ca: str | None

    @contextmanager
    def opened(self) -> Iterator[UrlReader]:
        """Open a reader with a client of its own for the context."""
        with self.client() as client:
            yield UrlReader(self.url, client)

    def client(self, writer_url: str = WRITER_URL) -> Client:
        """A client of the service. Raises AccessRefused if token file or CA bundle is unusable."""
        try:
            tls = None if self.ca is None else make_tls_context(self.ca)
            return Client(writer_url, self.url, token=self._token(), tls=tls, timeout_s=TIMEOUT_S)
        except OSError as error:
            raise AccessRefused(
                f"{error.filename or self.ca}: {error.strerror or error}"
            ) from error

    def _token(self) -> str | None:
        file = self.token_file or os.environ.get("MQSTORE_TOKEN_FILE")
        if file is None:
            return os.environ.get("MQSTORE_TOKEN")
        found = Path(file).read_bytes().split()
        if not found or not found[0].isascii():
            raise AccessRefused(f"{file} holds no token; write one into it")
        return found[0].decode()


def look(log: LogAtUrl) -> Snapshot:
    """Take a snapshot of the log of a shard. Raises JobError."""
    with log.client() as client:
        found = _request(log.url, client.log_files, tries=FIRST_TRIES)
    segments = tuple(
        LogSegment(each.name, each.offset, each.offset, each.offset + each.size)
        for each in found.segments
    )
    return Snapshot(log, segments)


class UrlReader:
    """``LogReader`` over a service, which has no request for queue entries.

    So no record boundary inside a segment is known. A range is a whole segment, and damage that
    hides the start of the next record hides the rest of the segment.
    """

    def __init__(
        self, url: str, client: Client, *, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._url = url
        self._client = client
        self._sleep = sleep
        self._tags: dict[str, str | None] = {}

    def read(self, segment: LogSegment, offset: int, size: int) -> bytes:
        """See LogReader. Retries transient errors."""
        parts, start, stop = [], offset - segment.base, offset - segment.base + size
        while start < stop:
            part = self._part(segment.name, start, stop)
            parts.append(part)
            start += len(part)
        return b"".join(parts)

    def near(self, segment: LogSegment, offset: int, stop: int) -> int | None:
        """None: the service lists no record boundaries."""
        return None

    def next(self, segment: LogSegment, offset: int, stop: int) -> int | None:
        """None: the service lists no record boundaries."""
        return None

    def _part(self, name: str, start: int, stop: int) -> bytes:
        tag = self._tags.get(name)
        found = _request(
            self._url,
            lambda: self._client.log_bytes(name, start, stop, tag=tag),
            sleep=self._sleep,
        )
        if not found.content:
            raise SegmentGone(f"segment {name} has no bytes from {start} on any more")
        self._tags[name] = found.tag
        return found.content


def _request(
    url: str,
    send: Callable[[], T],
    *,
    tries: int = TRIES,
    sleep: Callable[[float], None] = time.sleep,
) -> T:
    """The result of ``send``, which is retried after transient errors. Raises JobError."""
    for tried in range(1, tries + 1):
        try:
            return send()
        except ProblemError as error:
            if error.status not in _TRANSIENT or tried == tries:
                raise _refusal(url, error) from error
            wait_s = error.retry_after_s
        except ClientError as error:  # no reply, or bytes that changed in transit
            if tried == tries:
                raise Unreachable(f"{url} does not answer ({error})") from error
            wait_s = None if isinstance(error, NoAnswer) else 0.0
        sleep(_wait_s(tried) if wait_s is None else min(wait_s, WAIT_MAX_S))
    raise AssertionError("the last try returns or raises")


def _wait_s(tried: int) -> float:
    """Seconds until the next attempt: exponential backoff with jitter."""
    longest: float = min(WAIT_FIRST_S * 2**tried, WAIT_MAX_S)
    return longest * random.uniform(0.5, 1.0)  # noqa: S311  # spreads retries, guards nothing


def _refusal(url: str, error: ProblemError) -> JobError:
    why = error.detail or str(error)
    if error.status in (401, 403):
        return AccessRefused(
            f"{url} refuses the credentials ({why}); name a token file with the role consume by"
            " tokenFile or MQSTORE_TOKEN_FILE"
        )
    if error.type in ("segment-expired", "segment-unknown"):
        return SegmentGone(f"{why}; run the job again, or keep the range with a pin")
    if error.type == "epoch-changed":
        return StoreChanged("the store was recovered while it was read; run the job again")
    if error.status in _TRANSIENT:
        return Unreachable(f"{url} has too much to do ({why}); run the job again later")
    return JobError(f"{url}: {why}")
