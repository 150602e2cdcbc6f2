"""Streams of a service's events: what ends them."""

from __future__ import annotations

import asyncio

import pytest

from mqstore.service import events
from mqstore.service.events import Events


def test_a_stream_ends_once_its_token_was_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "HEARTBEAT_S", 0.0)

    async def follow() -> list[bytes]:
        source = Events()
        for number in range(3):
            source.publish("topic", number=number)
        allowed = iter([True, True, False])
        return [part async for part in source.follow(None, None, lambda: next(allowed))]

    retry, *sent = asyncio.run(asyncio.wait_for(follow(), 60))
    assert retry == events.RETRY
    assert [b'"number":' in part for part in sent] == [True, True]


def test_an_idle_stream_ends_in_place_of_a_comment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "HEARTBEAT_S", 0.01)

    async def follow() -> list[bytes]:
        allowed = iter([True, True, True, False, False])
        return [part async for part in Events().follow(None, None, lambda: next(allowed))]

    assert asyncio.run(asyncio.wait_for(follow(), 60)) == [events.RETRY, b": nothing new\n\n"]
