"""Consumers at a service that counts their requests."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import Any, Final

import httpx
import pytest

from mqstore.client import AsyncClient, Client, ConsumedMessage
from mqstore.wire.examples import consumers as examples

MESSAGES: Final = 320
PREFETCH: Final = 32
HALF: Final = PREFETCH // 2


class Service:
    """Delivers MESSAGES messages, then none."""

    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()
        self.acknowledged: list[str] = []
        self._sent = 0

    async def reply(self, request: httpx.Request) -> httpx.Response:
        action = request.url.path.rpartition(":")[2]
        body = json.loads(request.content)
        if action == "receive":
            count = min(body["max"], MESSAGES - self._sent)
            if not count:
                await asyncio.Event().wait()
            self.requests[action] += 1
            return httpx.Response(200, json=self._received(count))
        self.requests[action] += 1
        self.acknowledged += body["receipts"]
        results = [{"receipt": each, "status": "ok"} for each in body["receipts"]]
        return httpx.Response(200, json={"group": "g", "results": results})

    def _received(self, count: int) -> dict[str, Any]:
        reply = dict(examples.RECEIVED)
        first, self._sent = self._sent, self._sent + count
        (message, *_) = reply["messages"]
        reply["messages"] = [
            {**message, "receipt": str(number)} for number in range(first, self._sent)
        ]
        return reply


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Service:
    found = Service()

    class Http(httpx.AsyncClient):
        def __init__(self, **_: Any) -> None:
            super().__init__(transport=httpx.MockTransport(found.reply))

    monkeypatch.setattr(AsyncClient, "_http_type", Http)
    return found


def require_few_requests(service: Service) -> None:
    assert sorted(service.acknowledged, key=int) == [str(each) for each in range(MESSAGES)]
    assert service.requests["receive"] <= MESSAGES // HALF
    assert service.requests["ack"] <= 2 * MESSAGES // HALF


def test_a_loop_receives_and_acknowledges_many_messages_in_a_request(service: Service) -> None:
    async def consume() -> None:
        async with AsyncClient() as client, client.consumer("g", "T", prefetch=PREFETCH) as found:
            async for message in found:
                message.ack()
                if message.receipt == str(MESSAGES - 1):
                    break
            await found.flush()

    asyncio.run(asyncio.wait_for(consume(), 60))
    require_few_requests(service)


def test_a_thread_does_so_without_waking_the_loop_for_each_message(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    wakes = 0

    def count(loop: asyncio.BaseEventLoop, *arguments: Any, **options: Any) -> asyncio.Handle:
        nonlocal wakes
        wakes += 1
        return call(loop, *arguments, **options)

    call = asyncio.BaseEventLoop.call_soon_threadsafe
    with Client() as client, client.consumer("g", "T", prefetch=PREFETCH) as found:
        monkeypatch.setattr(asyncio.BaseEventLoop, "call_soon_threadsafe", count)
        for message in found:
            message.ack()
            if message.receipt == str(MESSAGES - 1):
                break
        monkeypatch.undo()
        found.flush()
    require_few_requests(service)
    assert wakes <= MESSAGES // 2


def test_a_message_is_settled_by_any_thread_while_its_consumer_runs(service: Service) -> None:
    async def consume() -> list[ConsumedMessage]:
        got = []
        async with AsyncClient() as client, client.consumer("g", "T", concurrency=2) as found:
            for _ in range(2):
                message = await anext(found)
                await asyncio.to_thread(message.ack)
                got.append(message)
            await found.flush()
        return got

    first, second = asyncio.run(asyncio.wait_for(consume(), 60))
    assert {first.receipt, second.receipt} <= {*service.acknowledged}
    first.ack()


def test_leases_are_looked_through_while_no_thread_can_settle(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    owned: list[bool] = []

    async def consume() -> None:
        async with AsyncClient() as client, client.consumer("g", "T") as found:
            look = found._leases.wait_s

            def wait_s() -> float | None:
                owned.append(found._lock._is_owned())  # type: ignore[attr-defined]
                return look()

            monkeypatch.setattr(found._leases, "wait_s", wait_s)
            for _ in range(3):
                (await anext(found)).ack()
                await found.flush()

    asyncio.run(asyncio.wait_for(consume(), 60))
    assert owned
    assert all(owned)


def test_a_thread_that_settles_after_the_end_is_refused(service: Service) -> None:
    with Client() as client, client.consumer("g", "T") as found:
        message = next(found)
    with pytest.raises(Exception, match="the consumer has ended; the message is delivered again"):
        message.ack()
