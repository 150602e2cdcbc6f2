"""Topics, groups and offsets over the network: made, changed, committed, reset, deleted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from mqstore.client import Client, NewMessage, ProblemError
from mqstore.wire.examples import groups as examples
from mqstore.wire.groups import (
    Group,
    GroupOffsets,
    OffsetCommit,
    OffsetReset,
    OffsetsReset,
    Subscription,
)
from mqstore.wire.topics import TopicDeletion
from tests.services.service_processes import Run, writer

TOKENS = {role: f"{role}-token-0123456789" for role in ("admin", "consume", "produce", "system")}


@pytest.fixture
def filled(client: Client, topic: str) -> str:
    """Ten messages in the topic's one queue."""
    client.produce(topic, [NewMessage(body=f"{n}") for n in range(10)])
    return topic


def refused(call: Callable[[], Any]) -> tuple[int, str]:
    with pytest.raises(ProblemError) as caught:
        call()
    return caught.value.status, caught.value.type


@pytest.mark.parametrize(
    ("model", "example"),
    [
        (TopicDeletion, examples.TOPIC_DELETION),
        (Group, examples.GROUP),
        (GroupOffsets, examples.OFFSETS),
        (OffsetCommit, examples.COMMIT),
        (OffsetReset, examples.RESET),
        (Subscription, examples.SUBSCRIPTION),
        (OffsetsReset, examples.RESET_DONE),
    ],
)
def test_examples_are_what_the_service_reads_and_answers(model: Any, example: object) -> None:
    model.model_validate(example)


def test_a_request_may_name_its_shard_beside_its_own_parameters(services: Run, filled: str) -> None:
    with Client(services.writer_url, services.query_url, shard=0) as client:
        assert len(client.topics(limit=1).topics) == 1
        assert len(client.messages_by_time(filled, limit=3).messages) == 3
        client.commit("of-a-shard", filled, {0: 1})
        assert len(client.offsets("of-a-shard", limit=1).offsets) == 1
        assert client.lags(limit=1).groups
        assert client.delete_topic(filled, dry_run=True).messages == 10


def test_a_topics_fields_are_changed_one_by_one(client: Client) -> None:
    made = client.change_topic("changed", read_queues=8, write_queues=2, order=True)
    assert (made.read_queues, made.write_queues, made.perm, made.order) == (8, 2, 6, True)
    changed = client.change_topic("changed", perm=4, filter_type="MULTI_TAG")
    assert (changed.read_queues, changed.perm, changed.filter_type) == (8, 4, "MULTI_TAG")
    now = client.topic("changed")
    assert now.model_dump() == changed.model_dump(include=set(now.model_dump()))
    assert refused(lambda: client.produce("changed", [NewMessage()])) == (409, "topic-not-writable")
    wrong = {"message.type": "FIFO"}
    assert refused(lambda: client.change_topic("changed", attributes=wrong)) == (
        422,
        "topic-config-invalid",
    )


def test_queues_that_groups_have_not_consumed_are_taken_away_on_request_only(
    client: Client,
) -> None:
    client.create_topic("shrinks", queues=8)
    for queue_id in range(8):
        client.produce("shrinks", [NewMessage(body=f"{n}", queue_id=queue_id) for n in range(5)])
    assert refused(lambda: client.change_topic("shrinks", queues=3)) == (409, "queues-unread")
    client.commit("slow", "shrinks", {0: 5, 3: 1})
    client.commit("fast", "shrinks", dict.fromkeys(range(8), 5))
    shown = client.change_topic("shrinks", queues=3, dry_run=True)
    assert (shown.read_queues, shown.hidden_queues, shown.hidden_messages) == (8, 5, 25)
    assert [(each.group, each.messages) for each in shown.unread] == [("slow", 24)]
    with pytest.raises(ProblemError, match="slow \\(24\\)") as caught:
        client.change_topic("shrinks", queues=3)
    assert (caught.value.status, caught.value.type) == (409, "queues-unread")
    assert client.topic("shrinks").read_queues == 8

    drained = client.change_topic("shrinks", write_queues=3)
    assert (drained.hidden_messages, drained.read_queues, drained.write_queues) == (0, 8, 3)
    sent = [client.produce("shrinks", [NewMessage()]).messages[0].queue_id for _ in range(8)]
    assert set(sent) == {0, 1, 2}
    assert client.lag("slow").topics[0].lag == 34 + 8
    received = (
        client.receive("slow", "shrinks", max_messages=30).messages
        + client.receive("slow", "shrinks", max_messages=30).messages
    )
    assert {each.queue_id for each in received} == set(range(8))

    hidden = client.change_topic("shrinks", queues=3, allow_unread=True)
    assert (hidden.read_queues, hidden.hidden_messages, hidden.dry_run) == (3, 25, False)
    lag = client.lag("slow").topics[0]
    assert (lag.lag, [each.queue_id for each in lag.queues if each.lag]) == (10 + 8, [0, 1, 2])


def test_a_deletion_is_shown_then_done_and_the_topic_can_be_made_anew(
    client: Client, filled: str
) -> None:
    client.commit("deleting", filled, {0: 4})
    shown = client.delete_topic(filled, dry_run=True)
    assert (shown.queues, shown.messages, shown.groups) == (1, 10, ("deleting",))
    assert client.topic(filled).write_queues == 1
    first = client.pull(filled, 0).messages[0]

    assert client.delete_topic(filled) == shown.model_copy(update={"dry_run": False})

    assert refused(lambda: client.topic(filled)) == (404, "topic-unknown")
    assert refused(lambda: client.delete_topic(filled)) == (404, "topic-unknown")
    assert refused(lambda: client.produce(filled, [NewMessage()])) == (404, "topic-unknown")
    assert refused(lambda: client.pull(filled, 0)) == (404, "topic-unknown")
    assert client.message(first.offset_msg_id).body == first.body
    client.create_topic(filled, queues=1)
    (placed,) = client.produce(filled, [NewMessage(body="new")]).messages
    assert placed.queue_offset == 10
    pulled = client.pull(filled, 0)
    assert [message.body for message in pulled.messages] == ["new"]
    assert refused(lambda: client.offsets("deleting", topic="unknown")) == (404, "topic-unknown")


def test_system_topics_are_safe(client: Client) -> None:
    name = "SCHEDULE_TOPIC_XXXX"
    assert refused(lambda: client.delete_topic(name)) == (422, "topic-invalid")
    assert refused(lambda: client.change_topic(name)) == (422, "topic-invalid")


def test_a_group_commits_and_reads_where_it_stands(client: Client, filled: str) -> None:
    answer = client.commit("reading", filled, {0: 4})
    assert [(each.committed, each.lag) for each in answer.offsets] == [(4, 6)]
    assert client.offsets("reading") == client.offsets("reading", topic=filled) == answer
    back = {0: 3}
    assert refused(lambda: client.commit("reading", filled, back)) == (409, "offset-refused")
    assert client.commit("reading", filled, back, allow_back=True).offsets[0].committed == 3
    assert refused(lambda: client.commit("reading", filled, {0: 11})) == (409, "offset-refused")
    assert refused(lambda: client.commit("reading", filled, {1: 0})) == (404, "queue-unknown")
    assert refused(lambda: client.commit("reading", "unknown", {0: 0})) == (404, "topic-unknown")
    assert refused(lambda: client.commit("a b", filled, {0: 0})) == (422, "group-invalid")


def test_a_group_continues_at_the_offsets_of_another_one(client: Client, filled: str) -> None:
    client.commit("cloned", filled, {0: 4})
    shown = client.reset_offsets("clone", filled, "group", source="cloned", dry_run=True)
    assert [(each.before, each.after) for each in shown.queues] == [(None, 4)]
    client.reset_offsets("clone", filled, "group", source="cloned")
    assert client.offsets("clone").offsets[0].committed == 4
    unknown = refused(lambda: client.reset_offsets("clone", filled, "group", source="never-seen"))
    assert unknown == (404, "group-unknown")


def test_a_group_is_moved_once_it_was_shown(client: Client, filled: str) -> None:
    client.commit("moving", filled, {0: 4})
    third = client.pull(filled, 0, 2, max_messages=1).messages[0]
    for to, after in (("earliest", 0), ("latest", 10)):
        shown = client.reset_offsets("moving", filled, to, dry_run=True)
        assert [(each.before, each.after) for each in shown.queues] == [(4, after)]
    assert client.offsets("moving").offsets[0].committed == 4

    done = client.reset_offsets("moving", filled, "timestamp", timestamp=third.store_timestamp)

    assert client.offsets("moving").offsets[0].committed == done.queues[0].after <= 2
    timeless = refused(lambda: client.reset_offsets("moving", filled, "timestamp"))
    assert timeless == (422, "body-invalid")
    sourceless = refused(lambda: client.reset_offsets("moving", filled, "group"))
    assert sourceless == (422, "body-invalid")
    not_there = refused(lambda: client.reset_offsets("moving", filled, "latest", queue_ids=[1]))
    assert not_there == (404, "queue-unknown")


def test_groups_are_made_changed_listed_and_deleted(client: Client, filled: str) -> None:
    made = client.put_group("made", retry_times_max=3)
    assert made.configured
    assert made.config["retryTimesMax"] == 3
    assert client.put_group("made", consume_enable=False).config["retryTimesMax"] == 3
    client.commit("made", filled, {0: 1})
    assert client.group("made").topics == (filled,)
    assert "made" in {group.group for group in client.groups().groups}

    client.delete_group("made", clean_offset=True)

    assert refused(lambda: client.group("made")) == (404, "group-unknown")
    assert refused(lambda: client.put_group("CID_RMQ_SYS_TRANS")) == (422, "group-invalid")


def test_a_group_subscribes_with_an_expression_and_ends_it(client: Client, topic: str) -> None:
    made = client.subscribe("filtering", topic, "price > 5")
    assert client.subscription("filtering", topic) == made
    assert client.subscriptions("filtering").subscriptions == (made,)
    again = client.subscribe("filtering", topic, "price > 5")
    assert again.version > made.version
    assert again.born_ms == made.born_ms
    with pytest.raises(ProblemError) as caught:
        client.subscribe("filtering", topic, "price > 'five'")
    assert (caught.value.status, caught.value.type) == (400, "bad-filter")
    assert caught.value.problem["column"] == 9
    assert client.subscription("filtering", topic) == again
    unknown = refused(lambda: client.subscribe("filtering", "unknown", "a = 1"))
    assert unknown == (404, "topic-unknown")

    client.unsubscribe("filtering", topic)

    ended = refused(lambda: client.subscription("filtering", topic))
    assert ended == (404, "subscription-unknown")
    assert refused(lambda: client.unsubscribe("filtering", topic)) == ended


def test_commits_and_groups_outlive_the_process(tmp_path: Path) -> None:
    with writer(tmp_path / "store") as one, Client(one.url) as client:
        client.create_topic("t", queues=1)
        client.put_group("g", retry_queues=7)
        client.commit("g", "t", {0: 0})
        one.process.terminate()
        assert one.ended()[0] == 0
    with writer(tmp_path / "store") as one, Client(one.url) as client:
        assert client.offsets("g").offsets[0].committed == 0
        assert client.group("g").config["retryQueues"] == 7


def test_topics_are_made_by_a_produce_where_that_is_set(tmp_path: Path) -> None:
    settings = {"auto_create_topic_enable": True, "default_topic_queue_nums": 3}
    with writer(tmp_path / "store", **settings) as one, Client(one.url) as client:
        client.produce("t", [NewMessage(body="first")])
        assert client.topic("t").write_queues == 3
        client.delete_topic("t")
        client.produce("t", [NewMessage(body="second")])
        assert client.topic("t").write_queues == 3
        assert refused(lambda: client.produce("a.b", [NewMessage()])) == (422, "topic-invalid")
        lost = [NewMessage(body="x")]
        assert refused(lambda: client.produce("%RETRY%stranger", lost)) == (404, "topic-unknown")
        client.put_group("stranger")
        client.produce("%RETRY%stranger", lost)


def test_a_limit_of_the_store_is_a_problem_that_names_its_setting(tmp_path: Path) -> None:
    limits = {"max_topics": 2, "max_queues": 6, "max_groups": 1, "max_group_members": 1}
    settings = {"auto_create_topic_enable": True, "default_topic_queue_nums": 2, **limits}
    with writer(tmp_path / "store", **settings) as one, Client(one.url) as client:
        client.create_topic("t", queues=4)
        client.receive("g", ["t"])
        client.produce("t", [NewMessage(body="x")])
        client.receive("g", ["t"])
        assert client.groups().groups[0].group == "g"
        found = []
        for call in (
            lambda: client.create_topic("u", queues=3),
            lambda: [client.produce(each, [NewMessage(body="x")]) for each in ("u", "v")],
            lambda: client.receive("h", ["t"]),
            lambda: client.put_group("h"),
            lambda: client.subscribe("h", "t", "a > 1"),
            lambda: client.commit("h", "t", {0: 0}),
        ):
            with pytest.raises(ProblemError) as error:
                call()
            assert (error.value.status, error.value.type) == (409, "limit-reached")
            found.append(error.value.problem["setting"])
        assert found == ["maxQueues", "maxTopics", *["maxGroups"] * 4]


def test_roles_decide_who_may_commit_change_and_delete(tmp_path: Path) -> None:
    tokens = {f"token_{role}": token for role, token in TOKENS.items()}
    with writer(tmp_path / "store", **tokens) as one:

        def status(role: str, method: str, path: str, body: object = None) -> int:
            headers = {"authorization": f"Bearer {TOKENS[role]}"}
            return httpx.request(method, one.url + path, json=body, headers=headers).status_code

        commit = {"offsets": [{"topic": "t", "queueId": 0, "offset": 0}]}
        reset = {"topic": "t", "to": "latest"}
        assert status("consume", "PUT", "/v1/topics/t") == 403
        assert status("admin", "PUT", "/v1/topics/t") == 201
        assert status("produce", "PUT", "/v1/groups/g/offsets", commit) == 403
        assert status("consume", "PUT", "/v1/groups/g/offsets", commit) == 200
        assert status("consume", "POST", "/v1/groups/g/offsets:reset", reset) == 403
        assert status("admin", "POST", "/v1/groups/g/offsets:reset", reset) == 200
        assert status("consume", "PUT", "/v1/groups/g") == 403
        assert status("consume", "GET", "/v1/groups/g") == 200
        assert status("consume", "DELETE", "/v1/topics/t") == 403
        subscribe = {"expression": "a = 1"}
        assert status("produce", "PUT", "/v1/groups/g/subscriptions/t", subscribe) == 403
        assert status("consume", "PUT", "/v1/groups/g/subscriptions/t", subscribe) == 200
        own = "/v1/groups/CID_RMQ_SYS_TRANS/offsets"
        assert status("admin", "PUT", own, commit) == 403
        assert status("system", "PUT", own, commit) == 200
