"""Messages that a group sent back, filtered by its subscriptions: filterSupportRetry."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mqstore.client import Client
from mqstore.storage.codec import properties
from mqstore.storage.codec.record import Message
from mqstore.storage.message_store import MessageStore
from tests.services.service_processes import Process, query
from tests.unit.storage.puts import put_message
from tests.unit.storage.stores import open_store

RETRY = "%RETRY%g"


def _put(store: MessageStore, topic: str, real: str, price: int) -> None:
    given = {"RETRY_TOPIC": real, "price": str(price), "TAGS": f"t{price % 2}"}
    raw = properties.encode(given, trailing_separator=False)
    body = f"{real}{price}".encode()
    put_message(store, Message(topic, 0, body, raw, store.host, store.host, 1))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """g wants what is above 2 in T, and all of U; another group wants other things."""
    with open_store(tmp_path / "store") as store:
        for topic in ("T", "U"):
            store.create_topic(topic, queues=1)
        store.subscriptions.put("g", "T", "price > 2")
        store.subscriptions.put("h", "U", "price = 0")
        for topic in (RETRY, "T"):
            for price in range(5):
                for real in ("T", "U"):
                    _put(store, topic, real, price)
    return tmp_path / "store"


def _bodies(run: Process, topic: str = RETRY, **chosen: Any) -> list[str | None]:
    with Client(run.url, run.url) as client:
        return [each.body for each in client.pull(topic, 0, **chosen).messages]


def test_what_was_sent_back_is_chosen_by_the_subscription_of_its_real_topic(root: Path) -> None:
    every = [f"{real}{price}" for price in range(5) for real in ("T", "U")]
    wanted = [each for each in every if each[0] == "U" or each[1] in "34"]
    with query(root, filter_support_retry="true") as run:
        assert _bodies(run) == wanted
        assert _bodies(run, sql="price = 0") == wanted
        assert _bodies(run, tags="t0") == [each for each in wanted if int(each[1]) % 2 == 0]
        assert _bodies(run, "T") == every
        assert _bodies(run, "T", sql="price = 0") == ["T0", "U0"]


def test_without_the_setting_a_retry_topic_is_as_any_other(root: Path) -> None:
    with query(root) as run:
        assert len(_bodies(run)) == 10
        assert _bodies(run, sql="price = 0") == ["T0", "U0"]
