"""Appends under a fence, over HTTP: what the transaction coordinator builds on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from mqstore.client import Client
from tests.services.service_processes import Process, Run, writer

OP_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
TOKENS = {role: f"{role}-token-0123456789" for role in ("admin", "produce", "consume", "system")}


def _append(
    url: str, epoch: int, *records: dict[str, Any], name: str = "leader", **members: Any
) -> httpx.Response:
    body = {"fence": {"name": name, "epoch": epoch}, "records": records} | members
    return httpx.post(f"{url}/v1/internal/append", json=body)


def _raise(url: str, name: str, epoch: int) -> httpx.Response:
    return httpx.put(f"{url}/v1/internal/fences/{name}", json={"epoch": epoch})


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    with writer(tmp_path_factory.mktemp("store") / "store") as process:
        yield process


@pytest.mark.parametrize("durability", ["sync", "async"])
def test_one_append_over_several_topics_is_contiguous_and_as_asked_for(
    services: Run, client: Client, topic: str, durability: str
) -> None:
    real = {
        "topic": topic,
        "queueId": 0,
        "body": "committed",
        "properties": {"UNIQ_KEY": "u1", "TRAN_MSG": "true"},
        "sysFlag": 8,
        "preparedTransactionOffset": 4711,
        "bornTimestamp": 1_700_000_000_000,
        "bornHost": "10.0.0.7:1234",
        "reconsumeTimes": 2,
        "flag": -3,
    }
    decided = {"topic": OP_TOPIC, "queueId": 0, "bodyBase64": "MTI=", "properties": {"TAGS": "d"}}
    answer = _append(services.writer_url, 1, real, decided, name=topic[:60], durability=durability)
    assert answer.status_code == 201, answer.text
    first, second = answer.json()["records"]
    assert second["physicalOffset"] == first["physicalOffset"] + first["size"]
    assert (first["uniqKey"], second["uniqKey"]) == ("u1", "")
    assert answer.json()["readable"] is True
    (found,) = client.pull(topic, 0).messages
    assert (found.body, found.sys_flag & 12, found.prepared_transaction_offset) == (
        "committed",
        8,
        4711,
    )
    assert (found.born_timestamp, found.born_host) == (1_700_000_000_000, "10.0.0.7:1234")
    assert (found.reconsume_times, found.flag, found.uniq_key) == (2, -3, "u1")
    assert client.message(second["offsetMsgId"]).topic == OP_TOPIC


def test_an_older_epoch_is_refused_with_both_epochs_and_stores_nothing(one: Process) -> None:
    record = {"topic": "t", "queueId": 0, "body": "x"}
    assert _append(one.url, 5, record).status_code == 201
    assert _raise(one.url, "leader", 7).json() == {"name": "leader", "epoch": 7}
    with Client(one.url) as client:
        end = client.store().max_offset
        for refused in (_append(one.url, 6, record), _raise(one.url, "leader", 6)):
            assert refused.status_code == 409
            assert refused.json()["type"] == "urn:mqstore:problem:fenced-off"
            assert refused.json()["fence"] == {
                "name": "leader",
                "givenEpoch": 6,
                "presentEpoch": 7,
            }
        assert client.store().max_offset == end
    assert _append(one.url, 7, record).status_code == 201


def test_an_append_under_absent_keys_stores_nothing_once_one_has_a_record(tmp_path: Path) -> None:
    with writer(tmp_path / "store") as one, Client(one.url, one.url) as client:
        client.create_topic("t", queues=1)
        record = {"topic": "t", "queueId": 0, "body": "x", "properties": {"UNIQ_KEY": "k1"}}
        absent = [{"topic": "t", "key": "k1"}, {"topic": "t", "key": "k2"}]
        assert _append(one.url, 1, record, absent=absent).status_code == 201
        end = client.store().max_offset
        refused = _append(one.url, 1, record, absent=absent)
        assert refused.status_code == 409
        assert refused.json()["type"].endswith("keys-known")
        assert "'k1'" in refused.json()["detail"]
        assert client.store().max_offset == end
        assert _append(one.url, 1, record, absent=absent[1:]).status_code == 201
        committed = record | {"sysFlag": 8, "properties": {"UNIQ_KEY": "k2"}}
        assert _append(one.url, 1, committed).status_code == 201
        known = client.transaction_kinds([("t", "k1"), ("t", "k2"), ("t", "k3"), ("none", "k")])
        assert known.complete
        assert known.kinds == ((0,), (8,), (), ())


def test_fences_survive_a_kill(tmp_path: Path) -> None:
    with writer(tmp_path / "store") as one:
        assert _raise(one.url, "a", 3).status_code == 201
        assert _raise(one.url, "a", 3).status_code == 200
        one.kill()
    with writer(tmp_path / "store") as two:
        assert httpx.get(f"{two.url}/v1/internal/fences").json() == {
            "fences": [{"name": "a", "epoch": 3}]
        }
        assert httpx.get(f"{two.url}/v1/internal/fences/a").json()["epoch"] == 3
        assert httpx.get(f"{two.url}/v1/internal/fences/b").status_code == 404
        assert _append(two.url, 2, {"topic": "t", "queueId": 0}, name="a").status_code == 409


def test_after_a_restart_nothing_is_appended_before_the_fence_is_raised_again(
    tmp_path: Path,
) -> None:
    record = {"topic": "t", "queueId": 0}
    with writer(tmp_path / "store") as one:
        assert _append(one.url, 3, record).status_code == 201
        one.kill()
    with writer(tmp_path / "store") as two:
        refused = _append(two.url, 3, record)
        assert (refused.status_code, refused.json()["type"].rpartition(":")[2]) == (
            *(404, "fence-unknown"),
        )
        assert _raise(two.url, "leader", 3).status_code == 200
        assert _append(two.url, 3, record).status_code == 201


@pytest.mark.parametrize(
    ("record", "kind"),
    [
        ({"topic": "no/path", "queueId": 0}, "topic-invalid"),
        ({"topic": "t", "queueId": -1}, "body-invalid"),
        ({"topic": "t", "queueId": 0, "bornHost": "nowhere"}, "message-invalid"),
        ({"topic": "t", "queueId": 0, "body": "a", "bodyBase64": "YQ=="}, "body-invalid"),
        ({"topic": "t", "queueId": 0, "bodyBase64": "YQ"}, "body-invalid"),
        ({"topic": "t", "queueId": 0, "properties": {"a": "x\u0001"}}, "property-invalid"),
        ({"topic": "t", "queueId": 0, "properties": {"DELAY": "soon"}}, "message-invalid"),
    ],
)
def test_one_wrong_record_refuses_all_of_them(
    one: Process, record: dict[str, Any], kind: str
) -> None:
    with Client(one.url) as client:
        end = client.store().max_offset
        refused = _append(one.url, 1, {"topic": "t", "queueId": 0}, record, name="refused")
        assert refused.json()["type"] == f"urn:mqstore:problem:{kind}"
        assert client.store().max_offset == end


def test_only_the_system_role_may(tmp_path: Path) -> None:
    settings = {f"token_{role}": token for role, token in TOKENS.items()}
    with writer(tmp_path / "store", **settings) as one:
        for role, due in (("admin", 403), ("produce", 403), ("consume", 403), ("system", 201)):
            headers = {"authorization": f"Bearer {TOKENS[role]}"}
            url = f"{one.url}/v1/internal/fences/{role}"
            assert httpx.put(url, json={"epoch": 1}, headers=headers).status_code == due
            body = {
                "fence": {"name": role, "epoch": 1},
                "records": [{"topic": "t", "queueId": 0}],
            }
            answer = httpx.post(f"{one.url}/v1/internal/append", json=body, headers=headers)
            assert answer.status_code == due
