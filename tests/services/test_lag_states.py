"""The lag of a shared group by state, in the API, the metrics and the command."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from mqstore.client import Client, LagStates, NewMessage
from mqstore.wire.examples import lags as examples
from tests.forked_processes import run_mqstore
from tests.services.service_processes import ServicePair, service_pair
from tests.services.shard_processes import cluster


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServicePair]:
    """A group with messages of each state: of two retries one is leased."""
    delays = {"message_delay_level": "1s 2h"}
    with service_pair(tmp_path_factory.mktemp("states") / "store", **delays) as started:
        with started.client() as client:
            client.create_topic("orders", queues=1)
            client.produce("orders", [NewMessage(body=f"{n}") for n in range(20)])
            found = client.receive("billing", "orders", max_messages=10, invisible_s=3600).messages
            client.acknowledge("billing", found[5:7])
            client.give_back("billing", found[7], delay_level=2)
            client.give_back("billing", found[8], delay_level=-1)
            client.give_back("billing", [found[4], found[9]], delay_level=1)
            client.create_topic("empty")
            for _ in range(2):
                (retry,) = client.receive("billing", "empty", max_messages=1, wait_s=30).messages
                assert retry.topic == "%RETRY%billing"
            client.extend("billing", retry, invisible_s=0)
        yield started


STATES = LagStates(waiting=10, leased=5, retrying=1, acknowledged=6, delayed=1)


def test_documented_states_have_the_fields_of_replies(pair: ServicePair) -> None:
    one = httpx.get(f"{pair.query.url}/v1/groups/billing/lag").json()
    assert one["states"].keys() == examples.LAG["states"].keys()


def metric(url: str, name: str) -> dict[tuple[str, ...], float]:
    """The samples of a metric by group and, where it has one, topic."""
    return {
        (sample.labels["consumer_group"], *filter(None, [sample.labels.get("topic")])): sample.value
        for family in text_string_to_metric_families(httpx.get(f"{url}/metrics").text)
        for sample in family.samples
        if sample.name == name
    }


def test_the_lag_is_divided_by_state(pair: ServicePair) -> None:
    with pair.client() as client:
        found = client.lag("billing")
        (page,) = client.lags().groups
        assert (found.states, found.dead_letters) == (STATES, 1)
        assert (page.states, page.dead_letters) == (STATES, 1)
        assert found.lag == 10 + 5 + 1 + 6
        only = client.lag("billing", topic="%RETRY%billing").states
        assert only == LagStates(waiting=0, leased=1, retrying=1, acknowledged=0, delayed=1)


def test_the_states_have_metrics(pair: ServicePair) -> None:
    leased = metric(pair.writer.url, "rocketmq_consumer_inflight_messages")
    assert leased == {("billing", "orders"): 4, ("billing", "%RETRY%billing"): 1}
    assert metric(pair.writer.url, "mqstore_consumer_delayed_messages") == {("billing",): 1}
    while not (dead := metric(pair.query.url, "mqstore_dead_letters")):
        pass  # of a group whose offsets are saved, after flushConsumerOffsetInterval
    assert dead == {("billing",): 1}


def test_the_command_prints_the_states(pair: ServicePair) -> None:
    states = "waiting 10, leased 5, retrying 1, acknowledged 6, delayed 1, dead 1"
    query = ("-o", "table", "--query-url", pair.query.url)
    assert run_mqstore("lag", "billing", *query).stdout.splitlines()[-1] == states
    assert run_mqstore("lag", *query).stdout.splitlines()[-1].split(maxsplit=1) == [
        "billing",
        states,
    ]


def test_without_a_writer_the_lag_is_not_divided(tmp_path: Path) -> None:
    with service_pair(tmp_path / "store") as pair, pair.client() as client:
        client.create_topic("orders", queues=1)
        client.commit("billing", "orders", {0: 0})
        assert client.lag("billing").states == LagStates(
            waiting=0, leased=0, retrying=0, acknowledged=0, delayed=0
        )
        pair.writer.process.terminate()
        assert pair.writer.ended()[0] == 0
        assert client.lag("billing").states is None


def test_the_states_of_shards_are_added(tmp_path: Path) -> None:
    with cluster(tmp_path, 2) as shards:
        with shards.client(0) as client:
            client.create_topic("orders", queues=1)
        for number in (0, 1):
            with shards.client(number, shard=number) as client:
                client.produce("orders", [NewMessage(body=f"{n}") for n in range(4)])
                client.receive("billing", "orders", max_messages=1 + number)
        for number in (0, 1):
            with Client(*list(shards.client(number)._urls.values())[:2]) as client:
                expected = LagStates(waiting=5, leased=3, retrying=0, acknowledged=0, delayed=0)
                assert client.lag("billing").states == expected
                assert client.lags().groups[0].states == expected
