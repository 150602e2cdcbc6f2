"""/metrics counts what happened, under RocketMQ's names, and the reference has every metric."""

from __future__ import annotations

from collections.abc import Iterable

import httpx
import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from docs.generate.metrics import metric_names
from mqstore.client import Client, NewMessage, ProblemError
from tests.services.service_processes import Run

NODE = {"cluster": "DefaultCluster", "node_type": "broker", "node_id": "mqstore-0"}


def _families(url: str) -> Iterable[Metric]:
    return text_string_to_metric_families(httpx.get(f"{url}/metrics").text)


def _samples(url: str, name: str, **labels: str) -> list[Sample]:
    return [
        sample
        for family in _families(url)
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    ]


def _value(url: str, name: str, **labels: str) -> float:
    (sample,) = _samples(url, name, **labels)
    return sample.value


def test_traffic_is_counted_by_topic_under_rocketmqs_names(
    services: Run, client: Client, topic: str
) -> None:
    placed = client.produce(topic, [NewMessage(body="x") for _ in range(3)]).messages
    client.produce(topic, [NewMessage(body="later", delay_level=18)])
    size = sum(each.size for each in placed)
    url = services.writer_url
    labels = {**NODE, "topic": topic, "message_type": "normal", "is_system": "false"}
    (messages,) = _samples(url, "rocketmq_messages_in_total", topic=topic, message_type="normal")
    assert (messages.labels, messages.value) == (labels, 3)
    assert _value(url, "rocketmq_throughput_in_total", **labels) == size
    delayed = {**labels, "message_type": "delay"}
    assert _value(url, "rocketmq_messages_in_total", **delayed) == 1
    assert _value(url, "mqstore_delay_pending", level="18", delay="2h") >= 1

    assert len(client.pull(topic, 0).messages) == 3
    out = {**NODE, "topic": topic, "consumer_group": "", "is_system": "false"}
    assert _value(services.query_url, "rocketmq_messages_out_total", **out) == 3
    assert _value(services.query_url, "rocketmq_throughput_out_total", **out) == size
    assert len(client.pull(topic, 0, group="billing").messages) == 3
    named = {**out, "consumer_group": "billing"}
    assert _value(services.query_url, "rocketmq_messages_out_total", **named) == 3
    assert _value(services.query_url, "rocketmq_messages_out_total", **out) == 3
    assert _value(services.query_url, "rocketmq_throughput_out_total", **named) == size
    received = client.receive("shipping", topic, max_messages=10).messages
    shared = {**out, "consumer_group": "shipping"}
    assert _value(url, "rocketmq_messages_out_total", **shared) == len(received) == 3
    assert _value(url, "rocketmq_throughput_out_total", **shared) == size


def test_put_times_add_up_whatever_they_are_called(
    services: Run, client: Client, topic: str
) -> None:
    client.produce(topic, [NewMessage(body="x")])
    before = _put_counts(services.writer_url)
    client.produce(topic, [NewMessage(body="x")])
    client.produce(topic, [NewMessage(body="x"), NewMessage(body="y")])
    assert _put_counts(services.writer_url) == [count + 2 for count in before]


def _put_counts(url: str) -> list[float]:
    """Requests that put messages, as each family of metrics counts them."""
    times = [
        sample.value
        for family in _families(url)
        for sample in family.samples
        if sample.name.startswith("rocketmq_brokeruntime_pmdt_")
    ]
    assert len(times) == 13
    labels = {"request_code": "send_message", "response_code": "201"}
    return [
        _value(url, "mqstore_put_seconds_count"),
        _value(url, "rocketmq_message_size_count"),
        _value(url, "rocketmq_rpc_latency_count", **NODE, **labels),
        sum(times),
    ]


def test_refused_puts_are_counted_by_reason(services: Run, client: Client) -> None:
    labels = {"route": "/v1/topics/{topic}/messages", "problem": "topic-unknown"}
    before = _samples(services.writer_url, "mqstore_problems_total", **labels)
    with pytest.raises(ProblemError):
        client.produce("no-topic-of-that-name", [NewMessage(body="x")])
    after = _value(services.writer_url, "mqstore_problems_total", **labels)
    assert after == sum(sample.value for sample in before) + 1


def test_the_store_is_measured(services: Run, client: Client, topic: str) -> None:
    client.produce(topic, [NewMessage(body="x")], durability="sync")
    url, store = services.writer_url, client.store()
    assert _value(url, "mqstore_store_offset", bound="max") == store.max_offset
    behind = {"storage_type": "local", "storage_medium": "disk"}
    assert _value(url, "rocketmq_storage_dispatch_behind_bytes", **NODE, **behind) == 0
    assert _value(url, "rocketmq_storage_message_reserve_time", **behind) >= 0
    assert _value(url, "rocketmq_topic_number", **NODE) == len(client.topics().topics)
    assert _value(url, "mqstore_mapped_bytes", kind="commitlog") >= store.segment_size


def test_the_reference_has_every_metric(services: Run, client: Client, topic: str) -> None:
    client.produce(topic, [NewMessage(body="x")])
    client.pull(topic, 0)
    documented = metric_names()
    for url in (services.writer_url, services.query_url):
        for family in _families(url):
            name = f"{family.name}_total" if family.type == "counter" else family.name
            assert name in documented
