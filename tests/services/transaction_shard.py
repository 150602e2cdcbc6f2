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
    writer: Process
    query: Process
    settings: dict[str, Any]
    """Settings of the writer."""
    stack: contextlib.ExitStack
    seen: Counter[str] = field(default_factory=Counter)
    """Bodies that were there before."""

    def afresh(self) -> Shard:
        """For another test."""
        return replace(self, seen=self.seen + Counter(self.bodies()))

    def coordinator(
        self, status: str = "ready", **settings: Any
    ) -> AbstractContextManager[Process]:
        """A coordinator of this shard alone, unless ``shards_file`` lists others."""
        given = {"writer_url": self.writer.url, **settings}
        return service(
            Target.WRITER,
            ["-m", "mqstore.coordinator"],
            self.root / "store",
            status=status,
            **given,
        )

    def restart_writer(self) -> None:
        """An end in order, and another process at the same address."""
        self.writer.process.terminate()
        assert self.writer.ended()[0] == 0
        self.start_writer()

    def start_writer(self) -> None:
        """Another process at the address of the last one."""
        given = {"port": self.writer.port, **self.settings}
        self.writer = self.stack.enter_context(writer(self.root / "store", **given))

    def bodies(self) -> list[str]:
        """Bodies that a consumer reads of topic orders, sorted; without earlier ones."""
        return sorted((bodies_of(self.client) - self.seen).elements())


def bodies_of(client: Client, topic: str = "orders", queues: int = 4) -> Counter[str]:
    """How often a consumer reads each body."""
    found: Counter[str] = Counter()
    for queue in range(queues):
        offset: int | None = 0
        while True:
            pull = client.pull(topic, queue, offset, max_messages=1_000)
            if not pull.messages:
                break
            found.update(message.body or "" for message in pull.messages)
            offset = pull.next
    return found


@contextlib.contextmanager
def shard_at(root: Path, shard: int = 0, **settings: Any) -> Iterator[Shard]:
    """A store with its services, and topic orders. Producers are checked at once, unless
    ``settings`` of the writer say otherwise."""
    store = root / "store"
    root.mkdir(exist_ok=True)
    with contextlib.ExitStack() as stack:
        given = {"transaction_time_out": 0, "shard": shard, **settings}
        writes = stack.enter_context(writer(store, **given))
        reads = stack.enter_context(query(store, shard=shard))
        token = settings.get("token_admin")
        client = stack.enter_context(Client(writes.url, reads.url, token=token))
        client.create_topic("orders")
        yield Shard(root, client, writes, reads, given, stack)


def begin(process: Process, *bodies: str) -> str:
    messages = [{"body": body} for body in bodies]
    spec = {"producerGroup": "billing", "topic": "orders", "messages": messages}
    answer = httpx.post(f"{process.url}/v1/transactions", json=spec, timeout=60)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["transactionId"])


def end(process: Process, transaction: str, how: str, **body: str) -> httpx.Response:
    url = f"{process.url}/v1/transactions/{transaction}:{how}"
    return httpx.post(url, json=body or None, timeout=60)
