"""Lists of a store with 20,000 topics and as many groups: pages, made while the loop turns."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from tests.unit.storage.stores import open_store
from tests.unit.writer.writers_in_process import SMALL, Writers, kind_of, run

COUNT: Final = 20_000
TURNS: Final = 50
"""Turns of the event loop for which each look at the store is held."""


def _add(path: Path, table: str, entries: dict[str, Any]) -> None:
    found = json.loads(path.read_text())
    found[table] |= entries
    path.write_text(json.dumps(found))


def _fill(root: Path) -> None:
    """Make a store whose config files have COUNT topics and groups, half of them by offsets."""
    with open_store(root, SMALL, shard="0") as store:
        store.create_topic("t")
        store.groups.put("first", lambda known: known)
        store.subscriptions.put("first", "t", "a > 1")
    config = root / "config"
    for path in config.glob("*.bak"):
        path.unlink()
    topic = json.loads((config / "topics.json").read_text())["topicConfigTable"]["t"]
    group = json.loads((config / "subscriptionGroup.json").read_text())["subscriptionGroupTable"]
    names = [f"{number:05}" for number in range(COUNT)]
    made = {f"t-{each}": topic | {"topicName": f"t-{each}"} for each in names}
    _add(config / "topics.json", "topicConfigTable", made)
    made = {f"g-{each}": group["first"] | {"groupName": f"g-{each}"} for each in names[::2]}
    _add(config / "subscriptionGroup.json", "subscriptionGroupTable", made)
    offsets = ",".join(f'"t@g-{each}":{{0:0}}' for each in names[1::2])
    (config / "consumerOffset.json").write_text(f'{{"offsetTable":{{{offsets}}}}}')


class Turns:
    """Counts turns of the event loop; a look of another thread waits for some of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self.looks = 0

    def hold(self, owner: Any, name: str) -> None:
        """Let calls of a method return after TURNS turns of the loop."""
        look: Callable[..., Any] = getattr(owner, name)

        def held(*args: Any) -> Any:
            assert threading.get_ident() != self._loop_thread, f"{name} runs on the event loop"
            self.looks += 1
            turned = threading.Event()
            self._loop.call_soon_threadsafe(self._turn, TURNS, turned)
            found = look(*args)
            assert turned.wait(60), "the event loop does not turn"
            return found

        self._monkeypatch.setattr(owner, name, held, raising=True)

    def _turn(self, left: int, turned: threading.Event) -> None:
        if left:
            self._loop.call_soon(self._turn, left - 1, turned)
        else:
            turned.set()


async def _list(http: httpx.AsyncClient, path: str, of: str, **params: Any) -> list[list[Any]]:
    """The pages of a list."""
    pages: list[list[Any]] = []
    cursor: str | None = ""
    while cursor is not None:
        given = params | ({"cursor": cursor} if cursor else {})
        reply = (await http.get(path, params=given)).raise_for_status().json()
        pages.append(reply[of])
        cursor = reply["next"]
    return pages


def test_lists_are_pages_that_are_made_while_the_loop_turns_and_so_are_metrics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _fill(tmp_path / "store-0")

    async def act(writers: Writers) -> None:
        service, turns = writers.service(0), Turns(monkeypatch)
        store = service.store
        turns.hold(store, "topics_page")
        turns.hold(type(store.groups), "page")
        turns.hold(type(store.subscriptions), "of")
        async with writers.http(0) as http:
            topics = await _list(http, "/v1/topics", "topics")
            assert [len(page) for page in topics] == [1_000] * 20 + [1]
            names = [each["topic"] for page in topics for each in page]
            assert names == sorted(["t", *(f"t-{number:05}" for number in range(COUNT))])
            groups = await _list(http, "/v1/groups", "groups", limit=900)
            assert {len(page) for page in groups[:-1]} == {900}
            found = [each["group"] for page in groups for each in page]
            assert found == sorted(["first", *(f"g-{number:05}" for number in range(COUNT))])
            (subscriptions,) = await _list(http, "/v1/groups/first/subscriptions", "subscriptions")
            assert [each["topic"] for each in subscriptions] == ["t"]
            assert turns.looks == 21 + 23 + 1

            of_another = (await http.get("/v1/groups", params={"limit": 1})).json()["next"]
            refused = await http.get("/v1/topics", params={"cursor": of_another})
            assert kind_of(refused) == (400, "bad-cursor")

            turns.hold(type(store), "status")
            text = (await http.get("/metrics")).raise_for_status().text
            assert turns.looks > 21 + 23 + 1
            assert len(text) < 500_000
            count = next(each for each in text.splitlines() if "rocketmq_topic_number{" in each)
            assert count.endswith(f" {COUNT + 1}.0")

    limits = {"max_topics": COUNT + 10, "max_groups": COUNT + 10}
    config = SMALL.model_copy(update=limits)
    run(tmp_path, act, count=1, store_config=config)
