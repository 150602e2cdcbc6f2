"""A shard that is added takes part once all others know of it: real processes."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from mqstore.client import Client, NewMessage, ProblemError, Target
from tests.services.shard_processes import NOWHERE, Cluster, cluster, entry_at, write_list

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("shards")]

TRANSACTION = {"producerGroup": "billing", "topic": "t", "messages": [{"body": "a"}], "shard": 2}
UNCHECKED = "the lists of the other shards have not been checked yet"


def put_once_it_is_taken(client: Client, body: str) -> None:
    while True:
        try:
            client.produce("t", [NewMessage(body=body, keys=("k",))])
            return
        except ProblemError as error:
            assert error.type == "store-not-ready"


def found_by_all(shards: Cluster) -> list[list[str | None]]:
    """Bodies that each query which says that its answer is complete has found."""
    found = []
    for number in range(len(shards.shards)):
        with shards.client(number) as client:
            page = client.messages_by_key("t", "k")
            assert page.complete
            found.append([each.body for each in page.messages])
    return found


def test_a_shard_takes_nothing_before_all_others_know_of_it(tmp_path: Path) -> None:
    with cluster(tmp_path) as shards:
        with shards.client(0) as client:
            client.create_topic("t", queues=1)
        ahead = tmp_path / "ahead.json"
        old = [each.entry() for each in shards.shards]
        write_list(ahead, [*old, entry_at(2, NOWHERE)])
        third = shards.start(2, listed=ahead)
        with shards.client(2, shard=2) as new:
            for target in (Target.WRITER, Target.QUERY):
                while (detail := new.health(target).detail) == UNCHECKED:
                    pass
                assert detail == "shard 2 is not in the lists of these shards yet: 0, 1"
            new.create_topic("t", queues=1)
            with pytest.raises(ProblemError) as refused:
                new.produce("t", [NewMessage(body="lost", keys=("k",))])
            assert refused.value.type == "store-not-ready"
            assert refused.value.problem["writable"]["shard"] == 0
            assert not new.writes().taken
            begun = httpx.post(f"{third.writer.url}/v1/transactions", json=TRANSACTION)
            assert begun.json()["type"].endswith("store-not-ready")
            write_list(shards.listed, [*old, third.entry()])
            put_once_it_is_taken(new, "first")
            assert found_by_all(shards) == [["first"]] * 3
            third.await_status("ready")
            assert new.writes().taken
            begun = httpx.post(f"{third.writer.url}/v1/transactions", json=TRANSACTION)
            assert begun.status_code == 201
            write_list(ahead, old)
            third.await_status("not-ready")
            assert new.health(Target.QUERY).detail == "shard 2 is not in the list of shards"
        assert found_by_all(shards) == [["first"]] * 3
