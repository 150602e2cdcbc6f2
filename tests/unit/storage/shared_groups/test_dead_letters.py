"""Dead letters of a store: resent once, purged, and listed again only where that loses none."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from mqstore.storage.codec import properties
from mqstore.storage.codec.record import Record
from mqstore.storage.errors import (
    CursorError,
    DeadLettersFull,
    DiskFull,
    GroupNameError,
    MessageIdError,
)
from mqstore.storage.lookup.dead_letters import (
    DeadLetter,
    DeadLetterQuery,
    count_open,
    settled_of,
)
from mqstore.storage.lookup.topic_scan import TopicScans
from mqstore.storage.message_store import MessageStore
from mqstore.storage.metadata import settled_letters
from mqstore.storage.shared_groups import DeadLetters, LetterStatus, ResendTarget
from mqstore.storage.shared_groups import dead_letters as module
from mqstore.storage.system.threads import production_seams
from tests.unit.storage.puts import put_message
from tests.unit.storage.shared_groups.test_leases_of_a_store import Consumers
from tests.unit.storage.stores import abandon, message, open_store, put_some

DLQ, RETRY = "%DLQ%g", "%RETRY%g"
DONE, SETTLED, UNKNOWN, REFUSED = LetterStatus
ALL = DeadLetterQuery(DLQ, newest_first=False)
TOPIC, GROUP = ResendTarget


class Dead:
    """A store with ten dead letters of group g, made by a consumer that rejected them."""

    def __init__(self, store: MessageStore) -> None:
        self.store = store
        self.letters = DeadLetters(store, production_seams(), lambda key, _: int(key))

    @property
    def records(self) -> list[Record]:
        return self.store.lookups.records(DLQ, 0, 0, 100).records

    @property
    def ids(self) -> list[str]:
        return [each.offset_message_id for each in self.records]

    def listed(self, query: DeadLetterQuery = ALL) -> list[int]:
        """Queue offsets of the open dead letters, as a reader of the directory lists them."""
        store = self.store
        saved = settled_letters.load(production_seams().files, store.paths.dead_letters)
        scans = TopicScans(store.lookups, store.log, store.queues, store.state)
        query = query.with_settled(settled_of(store.queues, DLQ, saved))
        found = [
            each.queue_offset for each in scans.scan(query, limit=99, max_bytes=1 << 20).records
        ]
        if query == ALL:
            assert count_open(store.queues, DLQ, saved) == len(found)
        return found

    def of_topic(self, topic: str) -> list[Record]:
        queues = self.store.lookups.queues(topic)
        pulls = [self.store.lookups.records(topic, each.queue_id, 0, 100) for each in queues]
        return [record for each in pulls for record in each.records]

    def copies(self, topic: str = "T") -> list[Record]:
        """Messages that were resent to a topic."""
        found = self.of_topic(topic)
        return [each for each in found if "MQSTORE_DEAD_LETTER" in (each.properties or {})]


def fill(store: MessageStore) -> None:
    """Store ten messages, and make each a dead letter."""
    store.create_topic("T", queues=1)
    put_some(store, 10, queues=1)
    consumers = Consumers(store)
    consumers.give_back(*consumers.receive().messages, level=-1, reason="no stock")


@pytest.fixture
def dead(tmp_path: Path) -> Iterator[Dead]:
    with open_store(tmp_path / "store", deliver_delayed=False) as store:
        fill(store)
        yield Dead(store)


def test_a_dead_letter_says_where_it_came_from_and_why(dead: Dead) -> None:
    letter = DeadLetter(dead.records[3])
    first = dead.of_topic("T")[3]
    assert (letter.source_topic, letter.reason, letter.attempts) == ("T", "no stock", 1)
    assert letter.origin_message_id == first.offset_message_id


def test_each_delivery_counts_as_an_attempt(tmp_path: Path) -> None:
    with open_store(tmp_path / "store", deliver_delayed=False) as store:
        store.create_topic("T", queues=1)
        put_some(store, 1, queues=1)
        consumers = Consumers(store)
        for _ in range(18):
            consumers.receive()
            consumers.clock.time_s += 61
        (letter,) = [DeadLetter(each) for each in Dead(store).records]
        assert letter.attempts == 17
        assert letter.reason == "it was not acknowledged before its lease expired"


def test_a_chosen_one_is_resent_as_it_was(dead: Dead) -> None:
    (result,) = dead.letters.resend_chosen("g", [dead.ids[4].lower()], TOPIC).letters
    assert (result.message_id, result.status, result.topic) == (dead.ids[4], DONE, "T")

    original, (copy,) = dead.of_topic("T")[4], dead.copies()
    assert copy.offset_message_id == result.copy_id
    assert (copy.body, copy.reconsume_times, copy.tags) == (original.body, 0, "a")
    added = {
        "ORIGIN_MESSAGE_ID": original.offset_message_id,
        "MQSTORE_DEAD_LETTER": dead.ids[4],
        "WAIT": "false",
    }
    assert copy.properties == (original.properties or {}) | added
    assert dead.listed() == [0, 1, 2, 3, 5, 6, 7, 8, 9]


def test_a_repeated_resend_stores_nothing(dead: Dead) -> None:
    ids = [dead.ids[4], dead.ids[4], dead.ids[5]]
    dead.letters.resend_chosen("g", ids, TOPIC)
    for to in (TOPIC, GROUP):
        again = dead.letters.resend_chosen("g", ids, to).letters
        assert [each.status for each in again] == [SETTLED, SETTLED]
    assert len(dead.copies()) == 2


def test_only_the_group_gets_what_is_resent_to_it(dead: Dead) -> None:
    dead.letters.resend_chosen("g", dead.ids[:1], GROUP)
    (copy,) = dead.copies(RETRY)
    assert copy.properties is not None
    assert (copy.properties["RETRY_TOPIC"], copy.reconsume_times) == ("T", 0)
    (delivered,) = Consumers(dead.store).receive().messages
    assert (delivered.record.body, delivered.attempt) == (copy.body, 1)
    assert delivered.source_topic == "T"


def test_all_are_resent_in_batches_with_a_cursor(dead: Dead) -> None:
    batches, cursor = [], None
    for _ in range(9):
        found = dead.letters.resend_found(ALL, TOPIC, limit=4, cursor=cursor)
        batches.append(len(found.letters))
        cursor = found.cursor
        if cursor is None:
            break
    assert batches == [4, 4, 2]
    assert [each.body for each in dead.copies()] == [each.body for each in dead.records]
    assert dead.listed() == []
    with pytest.raises(CursorError):
        dead.letters.resend_found(ALL, TOPIC, limit=4, cursor="bad")


@pytest.mark.parametrize(
    ("query", "found"),
    [
        (DeadLetterQuery(DLQ, key="k3"), [3]),
        (DeadLetterQuery(DLQ, key=f"U{7:031d}"), [7]),
        (DeadLetterQuery(DLQ, tag="b"), []),
        (DeadLetterQuery(DLQ, source_topic="U"), []),
        (DeadLetterQuery(DLQ, reason="stock", tag="a", source_topic="T", key="k9"), [9]),
        (DeadLetterQuery(DLQ, reason="other"), []),
        (DeadLetterQuery(DLQ, to_ms=5), []),
    ],
)
def test_a_filter_selects(dead: Dead, query: DeadLetterQuery, found: list[int]) -> None:
    assert dead.listed(query) == found
    dead.letters.resend_found(query, TOPIC, limit=99)
    assert len(dead.copies()) == len(found)
    assert dead.listed() == [each for each in range(10) if each not in found]


def test_a_dry_run_changes_nothing(dead: Dead) -> None:
    found = dead.letters.resend_found(ALL, TOPIC, limit=3, dry_run=True)
    assert [(each.status, each.topic) for each in found.letters] == [(DONE, "T")] * 3
    assert dead.letters.purge_chosen("g", dead.ids[:2], dry_run=True).letters[0].status is DONE
    assert [each.count for each in dead.letters.purge_before("g", dry_run=True)] == [10]
    assert (dead.copies(), dead.listed()) == ([], list(range(10)))


def test_purged_dead_letters_are_not_listed(dead: Dead) -> None:
    (chosen,) = dead.letters.purge_chosen("g", [dead.ids[2]]).letters
    assert chosen.status is DONE
    assert [each.count for each in dead.letters.purge_before("g", offset=5)] == [4]
    assert dead.listed() == [5, 6, 7, 8, 9]
    newest = DeadLetterQuery(DLQ)
    assert dead.listed(newest) == [9, 8, 7, 6, 5]
    stored_ms = dead.records[7].store_timestamp_ms
    dead.letters.purge_before("g", before_ms=stored_ms)
    assert dead.listed() == [
        n for n in range(5, 10) if dead.records[n].store_timestamp_ms >= stored_ms
    ]
    dead.letters.purge_before("g")
    assert dead.listed() == []
    assert [each.count for each in dead.letters.purge_before("g")] == [0]


def test_a_filter_selects_what_a_purge_ends(dead: Dead) -> None:
    newer = replace(ALL, from_ms=dead.records[4].store_timestamp_ms, reason="stock")
    wanted = dead.listed(newer)
    planned = dead.letters.purge_found(newer, limit=99, dry_run=True).letters
    assert [each.message_id for each in planned] == [dead.ids[each] for each in wanted]
    one = dead.letters.purge_found(newer, limit=1)
    assert ([each.status for each in one.letters], one.cursor is None) == ([DONE], len(wanted) == 1)
    rest = dead.letters.purge_found(newer, limit=99, cursor=one.cursor)
    assert len(rest.letters) == len(wanted) - 1
    assert dead.listed() == [each for each in range(10) if each not in wanted]
    assert dead.copies() == []


def test_what_cannot_be_resent_says_why_and_stays(dead: Dead) -> None:
    dead.store.delete_topic("T")
    (gone,) = dead.letters.resend_chosen("g", dead.ids[:1], TOPIC).letters
    assert (gone.status, "T" in gone.detail) == (REFUSED, True)
    dead.store.create_topic("T", queues=1, perm=4)
    (closed,) = dead.letters.resend_chosen("g", dead.ids[:1], TOPIC).letters
    assert (closed.status, "topic T takes no messages: its perm is 4" in closed.detail) == (
        REFUSED,
        True,
    )
    dead.store.create_topic("%RETRY%g", queues=1, perm=4)
    (retry,) = dead.letters.resend_chosen("g", dead.ids[:1], ResendTarget.GROUP).letters
    assert (retry.status, "topic %RETRY%g takes no messages" in retry.detail) == (REFUSED, True)
    assert dead.listed() == list(range(10))


def test_an_ordered_message_goes_to_the_queue_of_its_key(dead: Dead) -> None:
    dead.store.create_topic("U", queues=4)
    for key in ("2", "3", "2"):
        known = {"UNIQ_KEY": key, "RETRY_TOPIC": "U", "__SHARDINGKEY": key}
        encoded = properties.encode(known, trailing_separator=False)
        put_message(dead.store, message(dead.store, 1, topic=DLQ).replace(properties=encoded))
    dead.letters.resend_chosen("g", dead.ids[10:], TOPIC)
    assert [each.queue_id for each in dead.copies("U")] == [2, 2, 3]


@pytest.mark.parametrize("source", [None, "RMQ_SYS_TRANS_HALF_TOPIC"])
def test_a_forged_dead_letter_is_refused(dead: Dead, source: str | None) -> None:
    known = {"KEYS": "k"} | ({} if source is None else {"RETRY_TOPIC": source})
    encoded = properties.encode(known, trailing_separator=False)
    forged = message(dead.store, 1, topic=DLQ).replace(properties=encoded)
    put_message(dead.store, forged)
    for to in ResendTarget:
        if to is TOPIC or source is None:
            (result,) = dead.letters.resend_chosen("g", dead.ids[10:], to).letters
            assert result.status is REFUSED


def test_an_id_of_something_else_is_unknown(dead: Dead) -> None:
    message_id = dead.of_topic("T")[0].offset_message_id
    other = dead.ids[0][:-2] + "01"
    results = dead.letters.resend_chosen("g", [message_id, other], TOPIC).letters
    assert [each.status for each in results] == [UNKNOWN, UNKNOWN]
    assert dead.letters.purge_chosen("other", dead.ids[:1]).letters[0].status is UNKNOWN
    with pytest.raises(MessageIdError):
        dead.letters.resend_chosen("g", ["no id"], TOPIC)
    with pytest.raises(GroupNameError):
        dead.letters.purge_before("")


def test_a_put_that_is_refused_settles_what_was_resent_before(
    dead: Dead, monkeypatch: pytest.MonkeyPatch
) -> None:
    put, left = dead.store.append, [3]

    def refuse_later(given: object) -> object:
        left[0] -= 1
        if left[0] < 0:
            raise DiskFull("the disk is full")
        return put(given)  # type: ignore[call-overload]

    monkeypatch.setattr(dead.store, "append", refuse_later)
    with pytest.raises(DiskFull):
        dead.letters.resend_found(ALL, TOPIC, limit=99)
    assert dead.listed() == [3, 4, 5, 6, 7, 8, 9]
    monkeypatch.undo()
    dead.letters.resend_found(ALL, TOPIC, limit=99)
    assert [each.body for each in dead.copies()] == [each.body for each in dead.records]


def test_a_kill_between_the_message_and_its_note_loses_and_repeats_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kill(*_: object) -> None:
        raise OSError("killed")

    store = open_store(tmp_path / "store", deliver_delayed=False)
    fill(store)
    before = Dead(store)
    monkeypatch.setattr(settled_letters, "save", kill)
    with pytest.raises(OSError, match="killed"):
        before.letters.resend_found(ALL, TOPIC, limit=4)
    monkeypatch.undo()
    abandon(store)

    with open_store(tmp_path / "store", deliver_delayed=False) as opened:
        dead = Dead(opened)
        assert dead.listed() == list(range(10))
        found = dead.letters.resend_found(ALL, GROUP, limit=99).letters
        assert [each.status for each in found] == [SETTLED] * 4 + [DONE] * 6
        copies = dead.copies() + dead.copies(RETRY)
        assert [each.body for each in copies] == [each.body for each in dead.records]
        assert dead.listed() == []


def test_what_is_settled_outlives_a_kill(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store", deliver_delayed=False)
    fill(store)
    before = Dead(store)
    before.letters.resend_chosen("g", before.ids[1:3], TOPIC)
    before.letters.purge_before("g", offset=1)
    abandon(store)
    with open_store(tmp_path / "store") as opened:
        dead = Dead(opened)
        assert dead.listed() == [3, 4, 5, 6, 7, 8, 9]
        assert len(dead.copies()) == 2


def test_dead_letters_of_a_topic_that_was_made_again_are_new(dead: Dead) -> None:
    # As a broker makes a topic again: with the same queue offsets at other places in the log.
    dead.letters.purge_before("g")
    saved = settled_letters.load(production_seams().files, dead.store.paths.dead_letters)
    ((place, known),) = saved.items()
    moved = known.with_ranges((), settled_letters.Place(9, known.last.physical_offset + 1), 0)
    settled_letters.save(production_seams().files, dead.store.paths.dead_letters, {place: moved})
    assert dead.listed() == list(range(10))


def test_a_bounded_number_of_ranges_is_kept(dead: Dead, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RANGES_MAX", 4)
    dead.letters.resend_chosen("g", dead.ids[1:6:2], TOPIC)
    with pytest.raises(DeadLettersFull, match="purge the oldest"):
        dead.letters.resend_chosen("g", [dead.ids[7], dead.ids[9]], TOPIC)
    assert dead.listed() == [0, 2, 4, 6, 7, 8, 9]
    dead.letters.purge_before("g", offset=7)
    dead.letters.resend_chosen("g", [dead.ids[7], dead.ids[9]], TOPIC)
    assert dead.listed() == [8]
