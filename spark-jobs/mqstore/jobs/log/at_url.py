"""A shard by the address of its query service: byte ranges over HTTP, checked and asked for again.

What query gives out is on disk. It says when it has more than it can do, and a rate that it was
set is kept by its own waiting. A token comes from a file or the environment, on each machine that
reads: an option would be shown by Spark.
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

from mqstore.client import WRITER_URL, Client, ClientError, ProblemError, trusting
from mqstore.client import Unreachable as NoAnswer
from mqstore.jobs.errors import AccessRefused, JobError, SegmentGone, StoreChanged, Unreachable
from mqstore.jobs.log.source import LogSegment, Snapshot

T = TypeVar("T")

TRIES: Final = 8
FIRST_TRIES: Final = 4
"""When a job begins: whoever mistyped an address is told within seconds."""
WAIT_FIRST_S: Final = 0.1
WAIT_MAX_S: Final = 10.0
TIMEOUT_S: Final = 60.0
"""A service with a transfer rate takes its time."""
_PASSING: Final = frozenset({429, 502, 503, 504})
"""Answers after which the same request may succeed."""


@dataclass(frozen=True, slots=True)
class LogAtUrl:
    url: str
    token_file: str | None
    ca: str | None

    @contextmanager
    def opened(self) -> Iterator[UrlReader]:
        with self.client() as client:
            yield UrlReader(self.url, client)

    def client(self, writer_url: str = WRITER_URL) -> Client:
        """Raises AccessRefused for files that cannot be used."""
        try:
            tls = None if self.ca is None else trusting(self.ca)
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
    """Raises JobError."""
    with log.client() as client:
        found = _asked(log.url, client.log_files, tries=FIRST_TRIES)
    segments = tuple(
        LogSegment(each.name, each.offset, each.offset, each.offset + each.size)
        for each in found.segments
    )
    return Snapshot(log, segments)


class UrlReader:
    """``LogReader`` over a service. No queue can be asked, so no boundary inside a segment is
    known: its range is all of it, and damage that hides where the next record is takes the rest."""

    def __init__(
        self, url: str, client: Client, *, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._url = url
        self._client = client
        self._sleep = sleep
        self._tags: dict[str, str | None] = {}

    def read(self, segment: LogSegment, offset: int, size: int) -> bytes:
        parts, start, stop = [], offset - segment.base, offset - segment.base + size
        while start < stop:
            part = self._part(segment.name, start, stop)
            parts.append(part)
            start += len(part)
        return b"".join(parts)

    def near(self, segment: LogSegment, offset: int, stop: int) -> int | None:
        return None

    def next(self, segment: LogSegment, offset: int, stop: int) -> int | None:
        return None

    def _part(self, name: str, start: int, stop: int) -> bytes:
        tag = self._tags.get(name)
        found = _asked(
            self._url,
            lambda: self._client.log_bytes(name, start, stop, tag=tag),
            sleep=self._sleep,
        )
        if not found.content:
            raise SegmentGone(f"segment {name} has no bytes from {start} on any more")
        self._tags[name] = found.tag
        return found.content


def _asked(
    url: str,
    ask: Callable[[], T],
    *,
    tries: int = TRIES,
    sleep: Callable[[float], None] = time.sleep,
) -> T:
    """What the service answers, asked again while it may yet."""
    for tried in range(1, tries + 1):
        try:
            return ask()
        except ProblemError as error:
            if error.status not in _PASSING or tried == tries:
                raise _refusal(url, error) from error
            wait_s = error.retry_after_s
        except ClientError as error:  # no answer, or bytes that changed on their way
            if tried == tries:
                raise Unreachable(f"{url} does not answer ({error})") from error
            wait_s = None if isinstance(error, NoAnswer) else 0.0
        sleep(_wait_s(tried) if wait_s is None else min(wait_s, WAIT_MAX_S))
    raise AssertionError("the last try returns or raises")


def _wait_s(tried: int) -> float:
    """Twice as long each time, and not with all others at once."""
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
    if error.status in _PASSING:
        return Unreachable(f"{url} has too much to do ({why}); run the job again later")
    return JobError(f"{url}: {why}")
