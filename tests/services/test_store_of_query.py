"""query beside a writer that lives, is killed, and is started again."""

from __future__ import annotations

from pathlib import Path

import httpx

from mqstore.client import Client, NewMessage
from tests.services.service_processes import query, writer

ROUTES = (
    "/v1/store",
    "/v1/segments",
    "/v1/topics/t/queues",
    "/v1/topics/t/queues/0/messages",
    "/v1/topics/t/queues/9/messages",
    "/v1/topics/t/queues/0/messages?offset=x",
    "/v1/topics/t/messages",
    "/v1/messages?physicalOffset=0",
    "/v1/messages?physicalOffset=1",
    "/v1/groups/nobody/lag",
)


def _told(url: str) -> set[str]:
    """What the answers of many routes say of the writer, errors too."""
    return {httpx.get(url + route).headers["x-mqstore-writer"] for route in ROUTES}


def test_query_says_whether_the_writer_lives_and_answers_without_it(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with writer(root) as put, query(root) as find, Client(put.url, find.url) as client:
        client.create_topic("t", queues=1)
        client.produce("t", [NewMessage(body="x")], durability="sync")
        alive = httpx.get(f"{find.url}/v1/store").json()
        assert (alive["writer"], alive["health"], alive["minOffset"]) == ("alive", "ready", 0)
        assert _told(find.url) == {"alive"}
        put.kill()
        assert httpx.get(f"{find.url}/v1/store").json()["writer"] == "down"
        assert client.pull("t", 0).messages[0].body == "x"
        assert _told(find.url) == {"down"}
        with writer(root):
            again = httpx.get(f"{find.url}/v1/store").json()
            assert again["writer"] == "alive"
            assert again["epoch"] > alive["epoch"]
            assert client.pull("t", 0).messages[0].body == "x"
