"""query beside a writer that lives, is killed, and is started again."""

from __future__ import annotations

from pathlib import Path

import httpx

from mqstore.client import Client, NewMessage, Target
from mqstore.storage.config import StoreConfig
from mqstore.storage.opening import open_directory
from mqstore.storage.options import StoreOptions
from mqstore.storage.system.threads import production_seams
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
    "/v1/groups/unknown/lag",
)


def _writer_states(url: str) -> set[str]:
    """Writer states in the replies of many routes, errors too."""
    return {httpx.get(url + route).headers["x-mqstore-writer"] for route in ROUTES}


def test_query_says_whether_the_writer_lives_and_answers_without_it(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with writer(root) as put, query(root) as find, Client(put.url, find.url) as client:
        client.create_topic("t", queues=1)
        client.produce("t", [NewMessage(body="x")], durability="sync")
        alive = httpx.get(f"{find.url}/v1/store").json()
        assert (alive["writer"], alive["health"], alive["minOffset"]) == ("alive", "ready", 0)
        assert _writer_states(find.url) == {"alive"}
        put.kill()
        assert httpx.get(f"{find.url}/v1/store").json()["writer"] == "down"
        assert client.pull("t", 0).messages[0].body == "x"
        assert _writer_states(find.url) == {"down"}
        with writer(root):
            again = client.store_state()
            assert again.writer == "alive"
            assert again.epoch > alive["epoch"]
            assert client.pull("t", 0).messages[0].body == "x"


def test_query_answers_while_the_store_is_recovered_and_says_so(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with writer(root) as put, Client(put.url) as client:
        client.create_topic("t", queues=1)
        (placed,) = client.produce("t", [NewMessage(body="x")], durability="sync").messages
        put.kill()
    with query(root) as find, Client(find.url, find.url) as client:
        begun = open_directory(root, StoreConfig(), production_seams(), StoreOptions())
        assert _writer_states(find.url) == {"recovering"}
        assert httpx.get(f"{find.url}/v1/store").json()["health"] == "recovering"
        assert client.pull("t", 0).messages[0].body == "x"
        assert client.message(placed.offset_msg_id).body == "x"
        assert client.messages_by_key("t", placed.uniq_key).messages[0].body == "x"
        assert client.health(Target.QUERY).status == "ready"
        begun.state.close()
        begun.lock.release()
        with writer(root):
            assert client.pull("t", 0).messages[0].body == "x"
            assert _writer_states(find.url) == {"alive"}
