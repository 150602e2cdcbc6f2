"""How far groups are behind, over the network."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from mqstore.client import Client, GroupLag, NewMessage, ProblemError
from mqstore.storage.admin.group_offsets import Commit
from mqstore.storage.layout import StoreFormat
from mqstore.storage.paths import StorePaths
from mqstore.storage.system.threads import production_seams
from mqstore.storage.tables.config_tables import ConsumerOffsets
from mqstore.wire.examples import lags as examples
from tests.services.service_processes import Process, Run, query, writer
from tests.services.shard_processes import cluster
from tests.unit.storage.puts import put_message
from tests.unit.storage.stores import message, open_store

SAVED_SOON = {"flush_consumer_offset_interval": 20}
TOKENS: dict[str, Any] = {
    f"token_{role}": f"{role}-0123456789abcdef" for role in ("admin", "consume", "system")
}
NEVER_SAVED = {"flush_consumer_offset_interval": 3_600_000}


def _shape(found: Any) -> Any:
    """The names of fields, all the way down."""
    if isinstance(found, dict):
        return {name: _shape(value) for name, value in found.items()}
    return [_shape(each) for each in found[:1]] if isinstance(found, list) else None


def _make_behind(root: Path) -> None:
    """A store at rest: g is behind by two messages of queue 0 of T and has no offset in queue 1,
    h has consumed all."""
    with open_store(root) as store:
        store.create_topic("T", queues=2)
        for number in range(3):
            put_message(store, message(store, number))
        put_message(store, message(store, 3, queue_id=1))
        store.offsets.commit("g", [Commit("T", 0, 1)])
        store.offsets.commit("h", [Commit("T", 0, 3), Commit("T", 1, 1)])


@pytest.fixture
def behind(tmp_path: Path) -> Path:
    """For a test that changes it."""
    _make_behind(tmp_path / "store")
    return tmp_path / "store"


@pytest.fixture(scope="module")
def find(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    root = tmp_path_factory.mktemp("store") / "store"
    _make_behind(root)
    with query(root) as process:
        yield process


def test_lag_is_returned_by_group_topic_and_queue(find: Process) -> None:
    with Client(find.url, find.url) as client:
        found = client.lag("g")
        first, second = found.topics[0].queues
        assert (first.committed, first.lag, second.committed, second.lag) == (1, 2, None, 1)
        assert first.last_store_timestamp == client.pull("T", 0).messages[0].store_timestamp
        assert first.next_store_timestamp == client.pull("T", 0).messages[1].store_timestamp
        assert found.lag == found.topics[0].lag == 3
        assert found.topics[0].lag_ms is not None
        assert found.topics[0].lag_ms >= (first.lag_ms or 0) > 0
        sums = {each.group: each.topics[0] for each in client.lags().groups}
        assert (sums["g"].lag, sums["h"].lag, sums["h"].lag_ms) == (3, 0, 0)
        assert _lag_metrics(find.url) == {"g": 3, "h": 0}


def _lag_metrics(url: str) -> dict[str, float]:
    """Messages that groups are behind in T."""
    return {
        sample.labels["consumer_group"]: sample.value
        for family in text_string_to_metric_families(httpx.get(f"{url}/metrics").text)
        for sample in family.samples
        if sample.name == "rocketmq_consumer_lag_messages" and sample.labels["topic"] == "T"
    }


def test_answers_say_how_old_the_offsets_are_and_whether_a_writer_saves_them(behind: Path) -> None:
    with query(behind) as find, Client(find.url, find.url) as client:
        offsets = client.lag("g").offsets
        assert (offsets.source, offsets.writer) == ("file", "down")
        assert offsets.saved_at is not None
        assert offsets.age_ms is not None
        config = behind / "config" / "consumerOffset.json"
        shutil.copy(config, config.with_name(config.name + ".bak"))
        config.write_text("{ torn")
        assert (client.lag("g").offsets.source, client.lag("g").lag) == ("backup", 3)


def test_commits_are_seen_once_they_are_saved(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with (
        writer(root, **SAVED_SOON) as put,
        query(root) as find,
        Client(put.url, find.url) as client,
    ):
        client.create_topic("T", queues=1)
        client.produce("T", [NewMessage()] * 3)
        with pytest.raises(ProblemError) as caught:
            client.lag("g")
        assert caught.value.type == "group-unknown"
        client.commit("g", "T", {0: 1})
        found = _until_known(client)
        assert (found.lag, found.offsets.writer) == (2, "alive")


def _until_known(client: Client) -> GroupLag:
    while True:
        try:
            return client.lag("g")
        except ProblemError as error:
            if error.type != "group-unknown":
                raise


def test_documented_examples_have_the_fields_of_answers(find: Process) -> None:
    one = httpx.get(f"{find.url}/v1/groups/g/lag").json()
    all_ = httpx.get(f"{find.url}/v1/lag").json()
    groups = [each | {"states": None} for each in examples.LAGS["groups"]]
    assert _shape(one) == _shape(examples.LAG | {"states": None}), "without a writer"
    assert _shape(all_) == _shape(examples.LAGS | {"groups": groups})


def test_groups_come_in_pages_and_of_one_topic(find: Process) -> None:
    with Client(find.url, find.url) as client:
        page = client.lags(limit=1)
        rest = client.lags(limit=1, cursor=page.next)
        assert [each.group for each in page.groups + rest.groups] == ["g", "h"]
        assert rest.next is None
        assert client.lags(topic="U").groups == ()
        for cursor in (page.next, "x", "", "AAAA", "é"):
            with pytest.raises(ProblemError) as caught:
                client.lags(topic="T", cursor=cursor)
            assert caught.value.type == "bad-cursor", cursor


@pytest.mark.parametrize(
    ("path", "status", "problem"),
    [
        ("/v1/groups/unknown/lag", 404, "group-unknown"),
        ("/v1/groups/a%20b/lag", 422, "group-invalid"),
        ("/v1/groups/" + "a" * 121 + "/lag", 422, "group-invalid"),
        ("/v1/groups/unknown/lag?topics=T", 400, "bad-parameter"),
        ("/v1/lag?limit=0", 400, "bad-parameter"),
        ("/v1/lag?limit=1001", 400, "bad-parameter"),
        ("/v1/lag?limit=1&limit=2", 400, "bad-parameter"),
        ("/v1/lag?topic=" + "a" * 300, 400, "bad-parameter"),
    ],
)
def test_what_makes_no_sense_is_refused(
    services: Run, path: str, status: int, problem: str
) -> None:
    answer = httpx.get(services.query_url + path)
    assert (answer.status_code, answer.json()["type"].rpartition(":")[2]) == (status, problem)


def test_group_without_an_offset_in_a_topic_has_all_of_it_before_it(behind: Path) -> None:
    with open_store(behind) as store:
        store.create_topic("U", queues=1)
        put_message(store, message(store, 1, topic="U"))
    with query(behind) as find, Client(find.url, find.url) as client:
        assert client.lag("g", topic="U").lag == 1
        with pytest.raises(ProblemError) as caught:
            client.lag("g", topic="never")
        assert caught.value.type == "topic-unknown"


def test_a_commit_that_was_answered_counts_before_it_is_saved(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with (
        writer(root, **NEVER_SAVED) as writes,
        query(root) as reads,
        Client(writes.url, reads.url) as client,
    ):
        client.create_topic("T", queues=1)
        client.produce("T", [NewMessage(body="a"), NewMessage(body="b")])
        with pytest.raises(ProblemError, match="group-unknown"):
            client.lag("g")
        assert client.lags().groups == ()
        client.commit("g", "T", {0: 1})
        assert not (root / "config" / "consumerOffset.json").exists()
        found = client.lag("g")
        assert (found.lag, found.offsets.source, found.offsets.age_ms) == (1, "writer", 0)
        listed = client.lags()
        assert (listed.offsets.source, listed.offsets.age_ms) == ("writer", 0)
        assert [(each.group, each.lag) for each in listed.groups] == [("g", 1)]
        assert [each.group for each in client.lags(topic="T").groups] == ["g"]
        client.commit("g", "T", {0: 2})
        assert client.lag("g").lag == 0
        assert [each.lag for each in client.lags().groups] == [0]
        client.delete_group("g", clean_offset=True)
        assert client.lags().groups == ()
        client.commit("h", "T", {0: 1})
        writes.kill()
        with pytest.raises(ProblemError, match="group-unknown"):
            client.lag("h")
        listed = client.lags()
        assert (listed.groups, listed.offsets.writer) == ((), "down")


@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGSTOP])
def test_saved_offsets_are_taken_while_no_writer_replies(tmp_path: Path, by: int) -> None:
    root = tmp_path / "store"
    with (
        writer(root, **SAVED_SOON) as writes,
        query(root) as reads,
        Client(writes.url, reads.url) as client,
    ):
        client.create_topic("T", queues=1)
        client.produce("T", [NewMessage(body="a"), NewMessage(body="b")])
        client.commit("g", "T", {0: 1})
        while _saved_offset(root, "g") != 1:
            pass
        if by == signal.SIGKILL:
            writes.kill()
        else:
            writes.process.send_signal(by)
        found, listed = client.lag("g"), client.lags()
        assert (found.lag, found.offsets.source) == (1, "file")
        assert [(each.group, each.lag) for each in listed.groups] == [("g", 1)]
        assert listed.offsets.source == "file"
        assert listed.offsets.age_ms is not None
        assert listed.offsets.writer == ("down" if by == signal.SIGKILL else "alive")


def _saved_offset(root: Path, group: str) -> int | None:
    """Saved offset of queue 0 of T."""
    seams = production_seams()
    return ConsumerOffsets.load(StorePaths(root), StoreFormat.V4_9, seams).get(group, "T", 0)


def test_commits_count_at_once_over_shards(tmp_path: Path) -> None:
    with (
        cluster(tmp_path, **NEVER_SAVED, **TOKENS) as shards,
        shards.client(0, token=TOKENS["token_admin"]) as admin,
        shards.client(0, token=TOKENS["token_consume"]) as first,
        shards.client(1, token=TOKENS["token_consume"]) as second,
    ):
        admin.create_topic("T", queues=1)
        for number in (0, 1):
            admin.produce("T", [NewMessage(body="a"), NewMessage(body="b")], shard=number)
        for number, expected in ((0, 1), (1, 2)):
            first.commit("g", "T", {0: 1}, shard=number)
            for client in (first, second):
                listed, found = client.lags(), client.lag("g")
                # The other shard does not know the group before it commits something there.
                assert sum(each.lag for each in listed.groups) == found.lag == expected
                assert listed.offsets.source == found.offsets.source == "writer"
        shards.shards[1].writer.kill()
        listed = first.lags()
        assert (listed.offsets.source, listed.offsets.writer) == ("none", "down")
        assert [(each.group, each.lag) for each in listed.groups] == [("g", 1)]
