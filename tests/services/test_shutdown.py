"""An orderly end with many requests open: what was acknowledged is there, and `abort` is gone."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from pathlib import Path

import httpx
import pytest

from mqstore.storage.store_reader import StoreReader
from mqstore.storage.system.threads import production_seams
from tests.services.service_processes import END_TIMEOUT_S, Process, writer

CONNECTIONS = 32
BEFORE_THE_END = 300
"""Requests that are answered before the signal."""


class _Producers:
    def __init__(self, url: str) -> None:
        self.url = url
        self.acknowledged: dict[str, str] = {}
        self.refused: set[str] = set()
        """Problem types."""
        self.enough = asyncio.Event()

    async def produce(self, client: httpx.AsyncClient, number: int, durability: str) -> None:
        """Until the service answers no more."""
        with contextlib.suppress(httpx.HTTPError):
            for sequence in range(1_000_000):
                name = f"{number}.{sequence}"
                answer = await client.post(
                    f"{self.url}/v1/topics/t/messages",
                    json={"messages": [{"body": name}], "durability": durability},
                )
                if answer.status_code != 201:
                    self.refused.add(answer.json()["type"].rpartition(":")[2])
                    continue
                self.acknowledged[name] = answer.json()["messages"][0]["offsetMsgId"]
                if len(self.acknowledged) >= BEFORE_THE_END:
                    self.enough.set()

    async def half_a_request(self) -> bytes:
        """A client that never sends its whole body; what it is answered."""
        host, _, port = self.url.removeprefix("http://").partition(":")
        reader, sender = await asyncio.open_connection(host, int(port))
        sender.write(
            b"POST /v1/topics/t/messages HTTP/1.1\r\nHost: localhost\r\n"
            b"Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
        )
        with contextlib.suppress(ConnectionError):
            answer = await reader.read()
            sender.close()
            return answer
        return b""


async def _until_it_ends(process: Process, durability: str) -> tuple[_Producers, bytes, int]:
    loop = asyncio.get_running_loop()
    limits = httpx.Limits(max_connections=CONNECTIONS)
    async with httpx.AsyncClient(limits=limits, timeout=60) as client:
        await client.put(f"{process.url}/v1/topics/t", json={"queues": 2})
        producers = _Producers(process.url)
        half = loop.create_task(producers.half_a_request())
        open_ones = [
            loop.create_task(producers.produce(client, number, durability))
            for number in range(CONNECTIONS)
        ]
        await producers.enough.wait()
        process.process.send_signal(signal.SIGTERM)
        code = await asyncio.to_thread(process.process.wait, END_TIMEOUT_S)
        await asyncio.gather(*open_ones)
        return producers, await half, code


@pytest.mark.parametrize(("durability", "pooled"), [("sync", False), ("async", True)])
@pytest.mark.slow
def test_an_end_in_order_with_many_open_requests(
    tmp_path: Path, durability: str, pooled: bool
) -> None:
    store = tmp_path / "store"
    patient = END_TIMEOUT_S  # for the body that is never whole, on a slow machine
    with writer(store, transient_store_pool_enable=pooled, receive_timeout_s=patient) as process:
        producers, half, code = asyncio.run(_until_it_ends(process, durability))
        assert code == 0, process.ended()[1]
    assert b" 503 " in half or half == b""
    assert producers.refused <= {"shutting-down", "store-not-ready"}
    assert not (store / "abort").exists()
    assert (store / "mqstore" / "clean-close.json").exists()
    with StoreReader.open(store, production_seams()) as reader:
        assert reader.state.flushed_offset == reader.log.max_offset
        for name, message_id in producers.acknowledged.items():
            assert reader.lookups.by_message_id(message_id).body.decode() == name
