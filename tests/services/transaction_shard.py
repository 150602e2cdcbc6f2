"""A store with its services, and coordinators for it: real processes."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx

from mqstore.client import Client, Target
from tests.services.service_processes import Process, query, service, writer


@dataclass
class Shard:
    """A store with its services, and what starts coordinators for it."""

    root: Path
    client: Client
    urls: dict[str, str]
    seen: Counter[str] = field(default_factory=Counter)
    """Bodies that were there before."""

    def afresh(self) -> Shard:
        """For another test."""
        return replace(self, seen=self.seen + Counter(self.bodies()))

    def coordinator(
        self, status: str = "ready", **settings: Any
    ) -> AbstractContextManager[Process]:
        lock = self.root / "lock"
        given = {"leader_lock": lock, "transaction_time_out": 0, **self.urls, **settings}
        return service(
            Target.WRITER,
            ["-m", "mqstore.coordinator"],
            self.root / "store",
            status=status,
            **given,
        )

    def bodies(self) -> list[str]:
        found = [self.client.pull("orders", queue).messages for queue in range(4)]
        bodies = Counter(message.body or "" for messages in found for message in messages)
        return sorted((bodies - self.seen).elements())


@contextlib.contextmanager
def shard_at(root: Path, shard: int = 0) -> Iterator[Shard]:
    """A new store with its services, and topic orders."""
    store = root / "store"
    root.mkdir(exist_ok=True)
    with contextlib.ExitStack() as stack:
        writes = stack.enter_context(writer(store, shard=shard))
        reads = stack.enter_context(query(store, shard=shard))
        client = stack.enter_context(Client(writes.url, reads.url))
        client.create_topic("orders")
        yield Shard(root, client, {"writer_url": writes.url, "query_url": reads.url})


def begin(process: Process, *bodies: str) -> str:
    messages = [{"body": body} for body in bodies]
    spec = {"producerGroup": "billing", "topic": "orders", "messages": messages}
    answer = httpx.post(f"{process.url}/v1/transactions", json=spec, timeout=60)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["transactionId"])


def end(process: Process, transaction: str, how: str, **body: str) -> httpx.Response:
    url = f"{process.url}/v1/transactions/{transaction}:{how}"
    return httpx.post(url, json=body or None, timeout=60)
