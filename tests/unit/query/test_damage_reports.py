"""Reports of damage from query to store-writer, over a writer that replies by a script."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any, cast

import httpx
import pytest

from mqstore.query import damage_reports
from mqstore.query.damage_reports import PATH, DamageReports
from mqstore.service.auth import OwnToken

ACCEPTED = httpx.Response(202)
REFUSED = httpx.Response(503, text="read-only")


class Writer:
    """A ``LocalWriter`` that returns ``replies`` in their order, then accepts all requests."""

    def __init__(self, *replies: httpx.Response | None) -> None:
        self._replies = iter(replies)
        self.requests: asyncio.Queue[tuple[str, str, dict[str, str], list[int]]] = asyncio.Queue()

    async def request(
        self, method: str, path: str, headers: dict[str, str], json: dict[str, list[int]]
    ) -> httpx.Response | None:
        self.requests.put_nowait((method, path, headers, json["offsets"]))
        return next(self._replies, ACCEPTED)


def _run(
    writer: Callable[[], Writer], test: Callable[[DamageReports, Writer], Awaitable[None]]
) -> None:
    async def run() -> None:
        made = writer()
        token = OwnToken(lambda: {"system": ("secret-system-token",)})
        reports = DamageReports(cast(Any, made), token, retry_s=0.0)
        task = asyncio.create_task(reports.run())
        async with asyncio.timeout(30):
            await test(reports, made)
        task.cancel()

    asyncio.run(run())


async def _until_sent(reports: DamageReports) -> None:
    while reports.waiting:  # noqa: ASYNC110 # it is sent on this loop, and has no event
        await asyncio.sleep(0)


def test_offsets_of_any_thread_are_sent_once_with_the_system_token() -> None:
    async def test(reports: DamageReports, writer: Writer) -> None:
        def note() -> None:
            for offset in (7, 9, 7):
                reports.note(offset)

        thread = threading.Thread(target=note)
        thread.start()
        thread.join()
        sent = await writer.requests.get()
        assert sent == ("POST", PATH, {"authorization": "Bearer secret-system-token"}, [7, 9])
        await _until_sent(reports)
        reports.note(11)
        assert (await writer.requests.get())[3] == [11]

    _run(Writer, test)


def test_offsets_that_were_not_accepted_are_sent_again_with_later_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    warnings: list[str] = []

    class Log:
        def warning(self, event: str, *, why: str) -> None:
            warnings.append(why)

    monkeypatch.setattr(damage_reports, "log", Log())

    async def test(reports: DamageReports, writer: Writer) -> None:
        reports.note(7)
        assert (await writer.requests.get())[3] == [7]
        reports.note(5)
        assert (await writer.requests.get())[3] == [5, 7]
        assert (await writer.requests.get())[3] == [5, 7]
        await _until_sent(reports)
        assert warnings == ["no store-writer of this store replies"], "failures are logged once"

    _run(lambda: Writer(None, REFUSED), test)


def test_a_bounded_number_of_offsets_waits_and_goes_in_one_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(damage_reports, "WAITING_MAX", 10)

    async def test(reports: DamageReports, writer: Writer) -> None:
        for offset in range(1_000):
            reports.note(offset)
        assert reports.waiting == 10
        assert len((await writer.requests.get())[3]) == 10
        await _until_sent(reports)

    _run(Writer, test)


def test_unsent_offsets_are_dropped_with_their_store() -> None:
    async def test(reports: DamageReports, writer: Writer) -> None:
        reports.note(7)
        reports.forget()
        reports.note(8)
        assert (await writer.requests.get())[3] == [8]

    _run(Writer, test)
