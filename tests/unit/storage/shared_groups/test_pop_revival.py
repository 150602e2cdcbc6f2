"""Messages that POP consumers of a broker took and did not acknowledge."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from mqstore.storage.admin.group_offsets import Commit
from mqstore.storage.codec import properties
from mqstore.storage.codec.record import Message
from mqstore.storage.config import StoreConfig
from mqstore.storage.delay.timer import TimerStatus
from mqstore.storage.lookup.pop_records import REVIVE_GROUP, REVIVE_PREFIX, source_of
from mqstore.storage.lookup.pull_filter import parse_tags
from mqstore.storage.message_store import MessageStore
from mqstore.storage.shared_groups import PopRevival, SharedGroups, Subscription
from mqstore.storage.system.threads import production_seams
from mqstore.storage.verify import Verification
from tests.field import unpack
from tests.unit.storage.puts import put_message
from tests.unit.storage.stores import bodies, open_store, put_some

SEAMS = production_seams()
REVIVE = REVIVE_PREFIX + "C"
OVER_MS = 1_700_000_000_000
"""A time that is over."""


def receive(store: MessageStore, group: str, topic: str) -> list[tuple[str, str, bytes]]:
    groups = SharedGroups(store, SEAMS, 0)
    wanted = [Subscription(topic, parse_tags(""))]
    found = groups.receive(group, wanted, count=100, max_bytes=1 << 20, invisible_s=60)
    return [(each.record.topic, each.source_topic, each.record.body) for each in found.messages]


def lag_of(store: MessageStore, group: str) -> int:
    topics = store.offsets.topics_of(group)
    return sum(each.lag for topic in topics for each in store.offsets.of(group, topic))


def test_a_group_gets_what_it_took_from_a_broker_and_did_not_acknowledge(tmp_path: Path) -> None:
    root = unpack("pop5", tmp_path)
    assert waiting_by_verify(root) == ["POP group popgroup has taken 5 messages"]
    with open_store(root, StoreConfig(), deliver_delayed=False) as store:
        revival = PopRevival(store, SEAMS)
        for _ in range(100):  # a step of the timer makes a part of the work
            store.delays.timer.step(0)
            revival.step(0)
        assert lag_of(store, "popgroup") == 5
    with open_store(root, StoreConfig()) as store:
        assert PopRevival(store, SEAMS).step(0) > 0  # no message twice
        got = receive(store, "popgroup", "PopTopic")
        retry = "%RETRY%popgroup_PopTopic"
        assert got == [(retry, "PopTopic", b"body %d" % n) for n in (1, 3, 5, 7, 9)]
        assert store.offsets.committed(REVIVE_GROUP, REVIVE_PREFIX + "OracleCluster", 0) == 0
    assert waiting_by_verify(root) == []


def waiting_by_verify(root: Path) -> list[str]:
    found = Verification(root, StoreConfig(), SEAMS).findings()
    return [each.what.partition(" of it")[0] for each in found if "POP group" in each.what]


def put_revive(store: MessageStore, tag: str, content: object) -> None:
    put_stored(store, REVIVE, json.dumps(content).encode(), {"TAGS": tag})


def put_stored(store: MessageStore, topic: str, body: bytes, table: dict[str, str]) -> None:
    separator = store.format.trailing_property_separator
    encoded = properties.encode(table, trailing_separator=separator)
    put_message(store, Message(topic, 0, body, encoded, store.host, store.host, OVER_MS))


def checkpoint(first: int, count: int, *, due_ms: int = OVER_MS, **more: object) -> object:
    known = {"t": "T", "c": "g", "q": 0, "so": first, "pt": 1, "n": count, "it": due_ms - 1}
    return {**known, "bm": 0, **more}


@contextmanager
def store_of_ten(
    root: Path, names: Sequence[str] = ("T", REVIVE)
) -> Iterator[tuple[MessageStore, PopRevival]]:
    topics = {name: {"topicName": name, "readQueueNums": 1, "writeQueueNums": 1} for name in names}
    (root / "config").mkdir()
    (root / "config/topics.json").write_text(json.dumps({"topicConfigTable": topics}))
    with open_store(root) as store:
        put_some(store, 10, queues=1)
        store.offsets.commit("g", [Commit("T", 0, 10)])
        yield store, PopRevival(store, SEAMS)


def revived(store: MessageStore, topic: str = "%RETRY%g_T") -> list[int]:
    return sorted(int(body.split()[1]) for body in bodies(store, topic=topic, queues=1))


def test_only_messages_without_an_acknowledgement_are_delivered_again(tmp_path: Path) -> None:
    with store_of_ten(tmp_path) as (store, revival):
        put_revive(store, "ck", checkpoint(0, 4))
        put_revive(store, "ack", {"t": "T", "c": "g", "q": 0, "so": 0, "pt": 1, "ao": 1})
        put_revive(store, "bAck", {"t": "T", "c": "g", "q": 0, "so": 0, "pt": 1, "aol": [2, 3]})
        put_revive(store, "ck", checkpoint(4, 3, d=[0, 2, 5], bm=0b010))
        revival.step(0)
        assert revived(store) == [0, 4, 9]
        assert store.offsets.committed(REVIVE_GROUP, REVIVE, 0) == 3
        assert receive(store, "g", "T") == [
            ("%RETRY%g_T", "T", b"body %d " % n * 10) for n in (0, 4, 9)
        ]


def test_an_acknowledgement_that_the_timer_delivers_meanwhile_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with store_of_ten(tmp_path) as (store, revival):
        put_revive(store, "ck", checkpoint(0, 2))
        status, timer = store.delays.timer.status, type(store.delays.timer)
        arrivals = [{"t": "T", "c": "g", "q": 0, "so": 0, "pt": 1, "ao": 1}]

        def deliver_and_look(_: object) -> TimerStatus:
            while arrivals:
                put_revive(store, "ack", arrivals.pop())
            return status()

        monkeypatch.setattr(timer, "status", deliver_and_look)
        revival.step(0)
        assert revived(store) == [0]


def test_a_checkpoint_waits_for_its_time_and_holds_those_behind_it(tmp_path: Path) -> None:
    with store_of_ten(tmp_path) as (store, revival):
        put_revive(store, "ck", checkpoint(0, 1, due_ms=SEAMS.clock.now_ms() + 3_600_000))
        put_revive(store, "ck", checkpoint(1, 1))
        revival.step(0)
        assert revival.revived == 0
        assert store.offsets.committed(REVIVE_GROUP, REVIVE, 0) is None


def test_records_that_are_no_checkpoints_are_passed_over(tmp_path: Path) -> None:
    with store_of_ten(tmp_path) as (store, revival):
        for content in ("text", {"t": "T"}, [1], {**dict(checkpoint(0, 1)), "so": "x"}):  # type: ignore[call-overload] # a mapping
            put_revive(store, "ck", content)
        put_revive(store, "ck", checkpoint(8, 9))  # partly beyond the queue's end
        revival.step(0)
        assert revived(store) == [8, 9]


def test_a_retry_of_a_retry_stays_in_its_topic(tmp_path: Path) -> None:
    names = ("T", REVIVE, "%RETRY%g+T")  # as enableRetryTopicV2 makes it
    with store_of_ten(tmp_path, names) as (store, revival):
        put_revive(store, "ck", checkpoint(0, 1))
        revival.step(0)
        put_revive(store, "ck", checkpoint(0, 1, t="%RETRY%g+T", pt=2))
        revival.step(0)
        found = store.lookups.records("%RETRY%g+T", 0, 0, 10).records
        assert [each.reconsume_times for each in found] == [1, 2]
        assert receive(store, "g", "T")[0][1] == "T"


def test_a_retry_topic_that_two_groups_may_have_has_the_messages_of_each(tmp_path: Path) -> None:
    """%RETRY%g_T is of the group g_T, and of the group g for what it took of T by POP."""
    names = ("T", REVIVE, "%RETRY%g_T", "Other")
    with store_of_ten(tmp_path, names) as (store, revival):
        store.offsets.commit("g_T", [Commit("Other", 0, 0), Commit("%RETRY%g_T", 0, 0)])
        put_stored(store, "%RETRY%g_T", b"returned", {"RETRY_TOPIC": "Other"})
        put_stored(store, "%RETRY%g_T", b"of an earlier 5.x", {})
        put_revive(store, "ck", checkpoint(0, 1))
        revival.step(0)
        of_pop = [body for topic, _, body in receive(store, "g", "T") if topic != "T"]
        of_other = [body for _, _, body in receive(store, "g_T", "Other")]
        assert [each[:17] for each in of_pop] == [b"of an earlier 5.x", b"body 0 body 0 bod"]
        assert of_other == [b"returned", b"of an earlier 5.x"]
        assert lag_of(store, "g_T") == 3


@pytest.mark.parametrize(
    ("topic", "source"),
    [("%RETRY%g_T", "T"), ("%RETRY%g+T", "T"), ("%RETRY%g", None), ("%RETRY%gg_T", None)],
)
def test_the_source_of_a_retry_topic(topic: str, source: str | None) -> None:
    assert source_of(topic, "g") == source
