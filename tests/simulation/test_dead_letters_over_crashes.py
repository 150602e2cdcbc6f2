"""Dead letters over crashes: each is listed until its message is stored again, and resent once.

A seeded operator resends and purges. Wherever a crash would leave another state behind, a copy of
the disk is opened, and all that is still listed is resent.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Final

import pytest

from mqstore.storage.layout import PROPERTY_DEAD_LETTER, StoreFormat
from mqstore.storage.lookup.dead_letters import DeadLetterQuery, settled_of
from mqstore.storage.lookup.topic_scan import TopicScans
from mqstore.storage.message_store import Durability
from mqstore.storage.metadata import settled_letters
from mqstore.storage.shared_groups import (
    DeadLetters,
    LetterStatus,
    ResendTarget,
    SharedGroups,
    Subscription,
    decode_receipts,
)
from tests.long_runs import few_first
from tests.simulation import SimulatedMachine
from tests.simulation.crashes import CrashPoints
from tests.simulation.delayed_store import DelayedStore
from tests.simulation.disk import SimulatedDisk
from tests.simulation.test_shared_groups_over_crashes import DEAD_LETTERS, SMALL
from tests.unit.storage.puts import put_message

COUNT: Final = 16
QUERY: Final = DeadLetterQuery(DEAD_LETTERS, newest_first=False)


class Shelf:
    """The dead letters of a store, as one process sees them."""

    def __init__(self, world: DelayedStore) -> None:
        self.world = world
        self.letters = DeadLetters(world.store, world.machine.seams, lambda _, __: 0)

    def listed(self) -> dict[int, str]:
        """Ids of the open dead letters by the number of their message."""
        store, files = self.world.store, self.world.machine.seams.files
        saved = settled_letters.load(files, store.paths.dead_letters)
        query = QUERY.with_settled(settled_of(store.queues, DEAD_LETTERS, saved))
        scans = TopicScans(store.lookups, store.log, store.queues, store.state)
        found = scans.scan(query, limit=2 * COUNT, max_bytes=1 << 20).records
        return {int(each.body): each.offset_message_id for each in found}

    def copies(self) -> Counter[int]:
        """How often each message was resent."""
        records = [*self.world.records("T", 0), *self.world.records("%RETRY%g", 0)]
        resent = [each for each in records if PROPERTY_DEAD_LETTER in (each.properties or {})]
        return Counter(int(each.body) for each in resent)


class Operator:
    """Resends and purges, and knows what was promised."""

    def __init__(self, seed: int) -> None:
        self.rng, self.chance = random.Random(seed), random.Random(seed + 1)
        self.format = self.rng.choice(list(StoreFormat))
        self.world = DelayedStore(seed, config=SMALL, store_format=self.format)
        self._bury()
        self.shelf = Shelf(self.world)
        self.resent: set[int] = set()
        self.purged: set[int] = set()
        self.purging: set[int] = set()
        """Purged, or in a purge that has not returned."""

    def _bury(self) -> None:
        store = self.world.store
        store.create_topic("T", queues=1)
        for number in range(COUNT):
            put_message(store, self.world.message(number, 0, queue_id=0), Durability.ASYNC)
        groups = SharedGroups(store, self.world.machine.seams, 0)
        wanted = [Subscription("T")]
        found = groups.receive("g", wanted, count=COUNT, max_bytes=1 << 20, invisible_s=60)
        receipts = decode_receipts(each.receipt for each in found.messages)
        groups.give_back("g", receipts, -1)
        store.log.sync()

    def work(self) -> int:
        """Returns the number of crashes."""
        points = CrashPoints(self.chance, lambda disk, _: self.check(disk))
        with points.of(self.world.machine.disk):
            while (listed := self.shelf.listed()) and points.error is None:
                chosen = self.rng.sample(sorted(listed), self.rng.randrange(1, 4) % len(listed) + 1)
                ids = [listed[each] for each in chosen]
                if self.rng.random() < 0.25:
                    self.purging |= set(chosen)
                    self.shelf.letters.purge_chosen("g", ids)
                    self.purged |= set(chosen)
                else:
                    to = self.rng.choice(list(ResendTarget))
                    done = self.shelf.letters.resend_chosen("g", ids, to).letters
                    assert {each.status for each in done} == {LetterStatus.DONE}
                    self.resent |= set(chosen)
        return points.states

    def check(self, disk: SimulatedDisk) -> None:
        """Open what a crash left, resend the rest, and count."""
        machine = SimulatedMachine(self.chance.getrandbits(32), clock=disk.clock, disk=disk)
        after = Shelf(DelayedStore(config=SMALL, store_format=self.format, machine=machine))
        listed, copies = set(after.listed()), after.copies()
        assert listed | set(copies) | self.purging == set(range(COUNT)), "one is lost"
        assert not listed & (self.resent | self.purged), "what was settled is listed again"

        cursor: str | None = None
        for _ in range(COUNT):
            found = after.letters.resend_found(QUERY, ResendTarget.TOPIC, limit=3, cursor=cursor)
            cursor = found.cursor
            if cursor is None:
                break
        assert (cursor, after.listed()) == (None, {})
        copies = after.copies()
        assert set(copies) | self.purging == set(range(COUNT))
        assert set(copies.values()) == {1}, f"resent twice: {copies}"


@pytest.mark.parametrize("seed", few_first(range(4)))
def test_after_any_crash_each_dead_letter_is_resent_once(seed: int) -> None:
    assert Operator(seed).work() > 10
