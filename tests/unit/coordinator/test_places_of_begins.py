"""On which shard a transaction begins while a new shard lacks its topic."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest

from mqstore.client import Client, ClientError, ProblemError, Topic
from mqstore.coordinator.shards import Shard, Shards
from mqstore.coordinator.topics import Topics
from mqstore.service import problems
from mqstore.service.problems import Problem


class Writer:
    """In a ``Client``'s place: a store-writer with some topics, or one that does not answer."""

    def __init__(self, *topics: str, answers: bool = True) -> None:
        self.topics = topics
        self.answers = answers

    def topic(self, name: str) -> Topic:
        if not self.answers:
            raise ClientError("no answer")
        if name not in self.topics:
            problem = {"type": problems.TOPIC_UNKNOWN.urn, "status": 404, "detail": "unknown"}
            raise ProblemError(404, problem)
        return Topic(topic=name, queues=1, read_queues=1, write_queues=1, perm=6, order=False)


def place(*writers: Writer, is_fixed: bool) -> int:
    """The number of the shard where a transaction of topic `t` begins that was to begin on 0."""

    async def find() -> int:
        shards = [
            cast(Shard, SimpleNamespace(ordinal=at, topics=Topics(cast(Client, writer))))
            for at, writer in enumerate(writers)
        ]
        found, topic = await Shards(shards).place(shards[0], "t", is_fixed=is_fixed)
        assert topic.topic == "t"
        return found.ordinal

    return asyncio.run(find())


NEW, OLD, AWAY = Writer(), Writer("t"), Writer(answers=False)


def test_a_shard_that_has_the_topic_is_used() -> None:
    assert place(OLD, OLD, is_fixed=False) == 0


def test_another_shard_is_used_while_a_new_one_lacks_the_topic() -> None:
    assert place(NEW, AWAY, OLD, is_fixed=False) == 2


def test_a_transaction_of_a_fixed_shard_waits_for_the_topic() -> None:
    with pytest.raises(Problem, match="shard 0 does not have topic t yet") as refused:
        place(NEW, OLD, is_fixed=True)
    assert refused.value.kind is problems.COORDINATOR_NOT_READY
    assert refused.value.headers["retry-after"]


@pytest.mark.parametrize("is_fixed", [True, False])
def test_a_topic_that_no_shard_has_is_unknown(is_fixed: bool) -> None:
    with pytest.raises(Problem) as refused:
        place(NEW, NEW, is_fixed=is_fixed)
    assert refused.value.kind is problems.TOPIC_UNKNOWN
