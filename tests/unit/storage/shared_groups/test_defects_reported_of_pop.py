"""Defects that were reported of RocketMQ's POP consumers do not occur in shared groups.

The numbers are those of issues of apache/rocketmq.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from mqstore.storage.admin.topics import TopicChange
from mqstore.storage.layout import StoreFormat
from mqstore.storage.shared_groups import ReceiptStatus, decode_receipts
from tests.unit.storage.puts import put_message
from tests.unit.storage.shared_groups.test_leases_of_a_store import Consumers, places
from tests.unit.storage.stores import message, open_store, put_some

MANY = 1_000
LEASE_S = 61
RETRIES = "%RETRY%g"


@pytest.fixture
def consumers(tmp_path: Path) -> Iterator[Consumers]:
    with open_store(tmp_path / "store", deliver_delayed=False) as store:
        store.create_topic("T", queues=1)
        yield Consumers(store)


def test_leases_that_end_in_one_moment_are_all_delivered_again(consumers: Consumers) -> None:
    """#9956: a change of many messages' invisible time to one moment stopped their revival."""
    put_some(consumers.store, MANY, queues=1)
    found = consumers.receive(MANY).messages
    receipts = decode_receipts(each.receipt for each in found)
    assert consumers.groups.extend("g", receipts, 600) == [ReceiptStatus.OK] * MANY

    consumers.clock.time_s += 601
    again: Counter[tuple[int, int]] = Counter()
    while messages := consumers.receive(100).messages:
        again.update(places(messages))
    assert again == Counter(places(found))


def test_what_a_late_and_another_consumer_acknowledge_does_not_return(consumers: Consumers) -> None:
    """#7724: an acknowledged message was revived; #3787, #4153: acknowledgements of slow consumers
    made messages count as failed."""
    put_some(consumers.store, 10, queues=1)
    late = consumers.receive().messages
    consumers.clock.time_s += LEASE_S
    others = consumers.receive(5).messages
    consumers.acknowledge(*others)
    consumers.acknowledge(*late)
    assert consumers.offsets() == [10]

    for _ in range(20):
        consumers.clock.time_s += LEASE_S
        found = consumers.receive()
        assert (found.messages, found.dead) == ([], 0)


def test_a_message_that_is_dead_before_its_copy_is_stored_is_not_lost(consumers: Consumers) -> None:
    """#7914: unacknowledged messages were lost on the way to the retry topic."""
    put_some(consumers.store, 10, queues=1)
    given = consumers.receive().messages
    consumers.give_back(*given[:5], level=-1)
    consumers.clock.time_s += LEASE_S
    left = consumers.receive().messages
    dead = [each.body for each in consumers.of_topic("%DLQ%g")]
    assert sorted([*dead, *(each.record.body for each in left)]) == sorted(
        each.record.body for each in given
    )


def test_a_group_without_retry_queues_drops_what_is_returned_as_a_broker_does(
    consumers: Consumers,
) -> None:
    """AbstractSendMessageProcessor of both versions accepts it and stores nothing."""
    put_some(consumers.store, 4, queues=1)
    consumers.store.groups.put("g", lambda known: replace(known, retry_queues=0))
    given = consumers.receive().messages
    end = consumers.store.log.max_offset
    for level in (0, -1):
        consumers.give_back(given.pop(0), level=level)
    assert consumers.store.log.max_offset == end
    consumers.clock.time_s += LEASE_S
    again = consumers.receive().messages
    assert [each.record.body for each in again] == [each.record.body for each in given]


def test_a_receive_takes_the_highest_queue_of_a_priority_topic_first(tmp_path: Path) -> None:
    """As PopMessageProcessor does; the others of its topics keep their turn."""
    with open_store(tmp_path / "store", format=StoreFormat.V5_X) as store:
        store.create_topic("T", queues=4)
        store.put_topic("T", TopicChange(attributes={"message.type": "PRIORITY"}))
        for queue_id in (0, 3, 1, 2):
            put_message(store, message(store, queue_id, queue_id=queue_id))
        consumers = Consumers(store)
        given = [consumers.receive(count=1).messages[0].record.queue_id for _ in range(4)]
        assert given == [3, 2, 1, 0]


def test_retries_of_a_topic_that_was_made_again_come_to_an_end(consumers: Consumers) -> None:
    """#8479: retries went on for ever after their topic was deleted and made again."""
    store = consumers.store
    put_some(store, 1, queues=1)
    store.groups.put("g", lambda known: replace(known, retry_times_max=2))
    store.put_topic(RETRIES, TopicChange(1, 1, 6))
    put_message(store, message(store, 1, topic=RETRIES))
    store.delete_topic("T")
    store.create_topic("T", queues=1)

    attempts = []
    while messages := consumers.receive().messages:
        attempts += [(each.record.topic, each.attempt) for each in messages]
        consumers.clock.time_s += LEASE_S
    assert attempts == [(RETRIES, attempt) for attempt in range(1, len(attempts) + 1)]
    assert len(attempts) == 3
    assert len(consumers.of_topic("%DLQ%g")) == 1
