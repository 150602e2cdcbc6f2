"""Several shards, each a real store-writer and a real query, that know each other by one file."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from mqstore.client import Client, Target
from tests.services.service_processes import (
    START_TIMEOUT_S,
    Process,
    await_ready,
    query,
    writer,
)

NOWHERE = "http://127.0.0.1:1"
TIMEOUT_S = 10.0
"""Until a shard that does not answer is missing: on a busy machine one may be slow."""


@dataclass
class RunningShard:
    """One of them."""

    number: int
    writer: Process
    query: Process

    def entry(self) -> dict[str, Any]:
        return {
            "shard": self.number,
            "storeHost": store_host(self.number),
            "writerUrl": self.writer.url,
            "queryUrl": self.query.url,
        }

    def await_status(self, wanted: str) -> None:
        """Wait for a status of both services."""
        with Client(self.writer.url, self.query.url) as client:
            for target in (Target.WRITER, Target.QUERY):
                await_ready(client, target, wanted)


@dataclass
class Cluster:
    """They share ``listed``, the file."""

    root: Path
    settings: dict[str, Any]
    shards: list[RunningShard] = field(default_factory=list)
    _stack: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    @property
    def listed(self) -> Path:
        return self.root / "shards.json"

    def client(self, at: int = 0, **more: Any) -> Client:
        found = self.shards[at]
        return Client(found.writer.url, found.query.url, **more)

    def start(self, number: int, *, listed: Path | None = None) -> RunningShard:
        """One more, which is not in the others' list yet; ``listed`` is its own one."""
        given: dict[str, Any] = {
            "shard": number,
            "shards_file": listed or self.listed,
            "store_host": store_host(number),
            "status": "not-ready" if self.shards else "ready",
        }
        store = self.root / f"store-{number}"
        writes = self._stack.enter_context(writer(store, **given, **self.settings))
        reads = self._stack.enter_context(query(store, **given, **self.settings))
        shard = RunningShard(number, writes, reads)
        self.shards.append(shard)
        return shard

    def put_list(self, *more: dict[str, Any]) -> None:
        """Write the list and wait until all have read it, and those in it are ready."""
        entries = [*(each.entry() for each in self.shards), *more]
        write_list(self.listed, entries)
        wanted = sorted(each["shard"] for each in entries)
        for each in self.shards:
            for process in (each.writer, each.query):
                _await_list(process, wanted, self.settings.get("token_system"))
        for each in self.shards:
            each.await_status("ready")
        if not more:
            self.await_owners(*wanted)

    def await_owners(self, *wanted: int) -> None:
        """Wait until all shards know that these own keys."""
        for each in self.shards:
            _await_owners(each.writer, list(wanted))

    def restart_writer(self, number: int) -> None:
        """Another store-writer at the address of the last one, which may still run."""
        before = self.shards[number].writer
        before.kill()
        given = {"shard": number, "shards_file": self.listed, "store_host": store_host(number)}
        store = self.root / f"store-{number}"
        started = writer(store, port=before.port, **given, **self.settings)
        self.shards[number].writer = self._stack.enter_context(started)

    def close(self) -> None:
        self._stack.close()


def store_host(number: int) -> str:
    return f"10.9.0.{number}:10911"


def entry_at(number: int, url: str) -> dict[str, Any]:
    """Entry of a shard whose two services would run."""
    return {
        "shard": number,
        "storeHost": store_host(number),
        "writerUrl": url,
        "queryUrl": url,
    }


def write_list(path: Path, entries: list[dict[str, Any]], **keys: Any) -> None:
    """Write the list of shards, with ``keys`` beside it where they are given."""
    staged = path.with_suffix(".new")
    staged.write_text(json.dumps({"shards": entries} | ({"keys": keys} if keys else {})))
    staged.rename(path)


def _await_list(process: Process, wanted: list[int], token: str | None) -> None:
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    deadline = time.monotonic() + START_TIMEOUT_S
    known: object = None
    while known != wanted:
        assert time.monotonic() < deadline, f"{process.url} knows the shards {known}"
        answer = httpx.get(f"{process.url}/v1/store", headers=headers)
        known = [each["shard"] for each in answer.json().get("shards", ())]


def _await_owners(process: Process, wanted: list[int]) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    known: object = None
    while known != wanted:
        assert time.monotonic() < deadline, f"{process.url}: shards {known} own keys"
        health = httpx.get(f"{process.url}/healthz/ready").json()
        known = health.get("keyOwners", {}).get("shards")


@contextlib.contextmanager
def cluster(root: Path, count: int = 2, **settings: Any) -> Iterator[Cluster]:
    """Start shards that know each other."""
    found = Cluster(root, {"shard_timeout_s": TIMEOUT_S, **settings})
    write_list(found.listed, [entry_at(0, NOWHERE)])
    try:
        for number in range(count):
            found.start(number)
        found.put_list()
        yield found
    finally:
        found.close()
