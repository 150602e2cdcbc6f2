"""Documents are rendered once for all who request them, and not more often than allowed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest

from mqstore.service import app
from mqstore.service.documents import Document
from tests.unit.service.fast_path.test_connection import Server, run

GET: Final = b"GET %b HTTP/1.1\r\nhost: localhost\r\n\r\n"


class Renderer:
    """Counts, and waits for ``allowed``."""

    def __init__(self) -> None:
        self.count = 0
        self.now = 0.0
        self.fails = False
        self.allowed = threading.Event()
        self.allowed.set()

    def __call__(self) -> bytes:
        assert self.allowed.wait(60)
        self.count += 1
        if self.fails:
            raise RuntimeError("no")
        return b"%d" % self.count

    def document(self, **options: Any) -> Document:
        return Document(self, clock=lambda: self.now, **options)


def served(scenario: Callable[[Renderer], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(_whole(scenario), 60))


async def _whole(scenario: Callable[[Renderer], Awaitable[None]]) -> None:
    await scenario(Renderer())


def test_all_who_request_it_meanwhile_have_one_rendering() -> None:
    async def scenario(renderer: Renderer) -> None:
        document = renderer.document(interval_s=1, burst=100)
        renderer.allowed.clear()
        requests = [asyncio.ensure_future(document.get()) for _ in range(50)]
        await asyncio.sleep(0)
        renderer.allowed.set()
        assert await asyncio.gather(*requests) == [b"1"] * 50

    served(scenario)


def test_one_is_rendered_each_interval_and_some_at_once() -> None:
    async def scenario(renderer: Renderer) -> None:
        document = renderer.document(interval_s=1, burst=3)
        assert [await document.get() for _ in range(5)] == [b"1", b"2", b"3", b"3", b"3"]
        for renderer.now in (0.5, 0.99):
            assert await document.get() == b"3"
        for renderer.now, expected in ((1.01, b"4"), (1.5, b"4"), (2.5, b"5")):
            assert await document.get() == expected

    served(scenario)


def test_a_failed_rendering_is_tried_again() -> None:
    async def scenario(renderer: Renderer) -> None:
        document = renderer.document()
        renderer.fails = True
        with pytest.raises(RuntimeError):
            await document.get()
        renderer.fails = False
        assert await document.get() == b"2"
        assert await document.get() == b"2"

    served(scenario)


def test_a_client_that_disconnects_ends_no_rendering() -> None:
    async def scenario(renderer: Renderer) -> None:
        document = renderer.document()
        renderer.allowed.clear()
        gone, waiting = (asyncio.ensure_future(document.get()) for _ in range(2))
        await asyncio.sleep(0)
        gone.cancel()
        renderer.allowed.set()
        assert await waiting == b"1"

    served(scenario)


def test_a_flood_of_requests_renders_the_openapi_document_once() -> None:
    async def scenario(server: Server) -> None:
        built = 0
        openapi = server.api.app.openapi

        def counted() -> dict[str, Any]:
            nonlocal built
            built += 1
            return openapi()

        server.api.app.openapi = counted  # type: ignore[method-assign]
        request = GET % b"/openapi.json"
        answers = await asyncio.gather(*(server.request(request) for _ in range(30)))
        assert built == 1
        assert {each.status for each in answers} == {200}
        assert len({each.body for each in answers}) == 1
        assert answers[0].header("content-type") == "application/json"

    run(scenario)


def test_a_flood_of_requests_renders_the_metrics_a_few_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(app, "METRICS_BURST", 3)
    monkeypatch.setattr(app, "METRICS_INTERVAL_S", 1e9)
    rendered = 0

    async def scenario(server: Server) -> None:
        nonlocal rendered

        class Counter:
            def collect(self) -> list[Any]:
                nonlocal rendered
                rendered += 1
                return []

            describe = collect

        server.api.metrics.registry.register(Counter())
        rendered = 0
        async with server.connection() as connection:
            for _ in range(30):
                answer = await connection.request(GET % b"/metrics")
                assert answer.status == 200 and b"mqstore_http_in_flight" in answer.body
        assert rendered == 3

    run(scenario)
