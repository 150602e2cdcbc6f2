"""Store-writers of several shards in one process, which reach each other without sockets."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import httpx

from mqstore.service.relay_connections import (
    NoReply,
    NotSent,
    RelayConnections,
    RelayedReply,
)
from mqstore.service.settings import Settings
from mqstore.storage import StoreConfig
from mqstore.writer.__main__ import build
from mqstore.writer.service import WriterService
from tests.unit.storage.stores import open_store

T = TypeVar("T")
SMALL: Final = StoreConfig(mapped_file_size_commit_log=1 << 20)
ADDRESS: Final = ("10.9.9.9", 4711)
"""Address of every client that is not a shard."""


class Writers:
    """Shards 0 to ``count`` - 1, each with a store of its own below ``root``."""

    def __init__(self, root: Path, count: int, settings: dict[str, Any]) -> None:
        self.listed = root / "shards.json"
        self._root = root
        self.count = count
        self._settings = settings
        self._services: dict[int, WriterService] = {}

    def http(self, shard: int, address: tuple[str, int] = ADDRESS) -> httpx.AsyncClient:
        """A client of one shard. Without that shard each request raises ConnectError."""
        transport = _Transport(self._services, address)
        return httpx.AsyncClient(transport=transport, base_url=url_of(shard), timeout=60)

    def service(self, shard: int) -> WriterService:
        return self._services[shard]

    def put_list(self, keys: dict[str, Any] | None = None) -> None:
        """Write the list of shards; ``check`` reads it."""
        entries = [
            {
                "shard": each,
                "storeHost": f"10.9.0.{each}:10911",
                "writerUrl": url_of(each),
                "queryUrl": url_of(each),
            }
            for each in range(self.count)
        ]
        listed = {"shards": entries} | ({} if keys is None else {"keys": keys})
        staged = self.listed.with_suffix(".new")
        staged.write_text(json.dumps(listed))
        staged.rename(self.listed)

    async def check(self) -> None:
        """Have every running shard read the list, and the owners of keys, shard 0 first."""
        for _, service in sorted(self._services.items()):
            await service.shards.check()

    async def start(self, shard: int) -> None:
        """Returns once the shard is ready."""
        settings = Settings.model_validate(
            {
                "store": self._root / f"store-{shard}",
                "store_host": f"10.9.0.{shard}:10911",
                "shard": shard,
                "shards_file": self.listed,
                "store_config": SMALL,
                **self._settings,
            }
        )
        if not settings.store.exists():  # a shard without a topic copies those of others first
            with open_store(settings.store, SMALL, shard=str(shard)) as store:
                store.create_topic("t")
        service = build(settings)
        service.address = f"127.0.0.1:{shard + 1}"
        transport = _Transport(self._services, (f"10.9.0.{shard}", 1))
        vars(service.shards)["_http"] = http = httpx.AsyncClient(transport=transport)
        vars(service.shards)["_connections_to"] = lambda url: _Connections(url, http)
        self._services[shard] = service
        await service.start()
        service.health.ready()
        await service.shards.joining.joined.wait()

    async def stop(self, shard: int) -> None:
        service = self._services.pop(shard)
        service.interrupt()
        await service.stop()


class _Transport(httpx.AsyncBaseTransport):
    """Delivers each request to the service whose address it has."""

    def __init__(self, services: dict[int, WriterService], client: tuple[str, int]) -> None:
        self._services = services
        self._client = client

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        service = self._services.get((request.url.port or 0) - 1)
        if service is None:
            raise httpx.ConnectError("no such process", request=request)
        transport = httpx.ASGITransport(app=service.front, client=self._client)
        return await transport.handle_async_request(request)


class _Connections(RelayConnections):
    """Sends requests by a client of httpx."""

    def __init__(self, url: str, http: httpx.AsyncClient) -> None:
        super().__init__(url, ssl.create_default_context)
        self._url = url
        self._http = http

    async def send(
        self,
        request: bytes,
        timeout_s: float,
        client: Hashable = None,
        hold: Callable[[int], None] = lambda _: None,
    ) -> RelayedReply:
        head, _, body = request.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        method, target, _ = first.split(" ")
        headers = dict(line.split(": ", 1) for line in lines)
        try:
            reply = await self._http.request(
                method, self._url + target, headers=headers, content=body, timeout=timeout_s
            )
        except httpx.ConnectError as error:
            raise NotSent(str(error)) from error
        except httpx.HTTPError as error:
            raise NoReply(str(error)) from error
        hold(len(reply.content))
        return RelayedReply(reply.status_code, reply.headers.raw, reply.content)


def url_of(shard: int) -> str:
    return f"http://127.0.0.1:{shard + 1}"


@contextlib.asynccontextmanager
async def writers(root: Path, count: int, settings: dict[str, Any]) -> AsyncIterator[Writers]:
    """Running shards that know each other, with the topic ``t``."""
    found = Writers(root, count, settings)
    found.put_list()
    try:
        await asyncio.gather(*(found.start(each) for each in range(count)))
        await found.check()
        yield found
    finally:
        for each in range(found.count):
            with contextlib.suppress(KeyError):
                await found.stop(each)


def run(root: Path, act: Callable[[Writers], Awaitable[T]], count: int = 2, **settings: Any) -> T:
    """The result of ``act``, called with so many running shards, which have these settings."""

    async def live() -> T:
        async with writers(root, count, settings) as found:
            return await act(found)

    return asyncio.run(asyncio.wait_for(live(), 120))


def spec(*keys: str | None, **more: Any) -> dict[str, Any]:
    """A transaction whose messages have these unique keys."""
    messages = [{"body": "a"} | ({} if key is None else {"uniqKey": key}) for key in keys]
    return {"producerGroup": "g", "topic": "t", "messages": messages, **more}


def kind_of(reply: httpx.Response) -> tuple[int, str]:
    return reply.status_code, str(reply.json()["type"]).rpartition(":")[2]


def states(replies: Sequence[httpx.Response]) -> list[tuple[str, str]]:
    """The id and the state of each transaction that was begun."""
    for each in replies:
        assert each.status_code == 201, each.text
    return [(each.json()["transactionId"], each.json()["state"]) for each in replies]
