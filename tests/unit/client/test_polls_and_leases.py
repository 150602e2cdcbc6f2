"""Long polls of mqstore's own programs, and the time after which another replica leads."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest

from mqstore.client import AsyncClient
from mqstore.client.base_client import POLL_SLACK_S, TIMEOUT_S
from mqstore.storage.replication.election import DURATION_S
from mqstore.wire.limits import POLL_S


class Requests:
    """Takes the requests of a client, and replies to none."""

    def __init__(self) -> None:
        self.first: asyncio.Future[tuple[dict[str, Any], dict[str, float]]] = (
            asyncio.get_running_loop().create_future()
        )

    async def reply(self, request: httpx.Request) -> httpx.Response:
        if not self.first.done():
            sent = json.loads(request.content)
            self.first.set_result((sent, request.extensions["timeout"]))
        await asyncio.Event().wait()
        raise AssertionError


@pytest.mark.parametrize("kind", ["consumer", "transactional producer"])
def test_a_poll_at_a_stopped_leader_ends_about_when_another_one_leads(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service lets it wait for less than a lease, and the client for its own timeout more."""

    async def run() -> None:
        requests = Requests()

        class Http(httpx.AsyncClient):
            def __init__(self, **_: Any) -> None:
                super().__init__(transport=httpx.MockTransport(requests.reply))

        monkeypatch.setattr(AsyncClient, "_http_type", Http)
        async with AsyncClient() as client:
            if kind == "consumer":
                async with client.consumer("g", "T"):
                    sent, timeout = await requests.first
            else:
                worker = client.transactional_producer("g", check=lambda _: "unknown")
                async with worker:
                    sent, timeout = await requests.first
        assert sent["wait"] == POLL_S <= DURATION_S
        assert timeout["read"] == POLL_S + POLL_SLACK_S
        assert timeout["connect"] == TIMEOUT_S

    asyncio.run(asyncio.wait_for(run(), 60))
