"""The set of copies in sync: which join and leave, and what is confirmed meanwhile."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from mqstore.storage.replication.in_sync import NEAR_S, InSyncSet

BEHIND_MAX_S = 15.0


def _alone(*members: str) -> InSyncSet:
    return InSyncSet("a", members, behind_max_s=BEHIND_MAX_S, now=0.0)


def _publish(copies: InSyncSet, now: float) -> None:
    names = copies.wanted(now)
    assert names is not None
    copies.begin(names)
    copies.settle(names, now)


def _pair() -> InSyncSet:
    """Leader ``a`` and member ``b``, which have the log up to 100."""
    copies = _alone()
    copies.note_own(100, 100, 0.0)
    copies.note_report("b", 100, 0.0)
    _publish(copies, 0.0)
    assert copies.names == frozenset({"a", "b"})
    return copies


def test_without_copies_the_disk_of_the_leader_confirms() -> None:
    copies = _alone()
    copies.note_own(100, 60, 0.0)
    assert (copies.confirmed, copies.replicated, copies.wanted(1e6)) == (60, None, None)


def test_a_copy_joins_once_it_has_what_is_confirmed() -> None:
    copies = _alone()
    copies.note_own(100, 100, 0.0)
    copies.note_report("b", 99, 0.0)
    assert copies.wanted(0.0) is None
    copies.note_report("b", 100, 0.1)
    assert copies.wanted(0.1) == frozenset({"a", "b"})


def test_a_copy_joins_once_it_has_the_tables_whose_changes_have_a_reply() -> None:
    copies = _alone()
    copies.note_own(100, 100, 0.0, tables=3)
    copies.note_report("b", 100, 0.0, tables=2)
    assert (copies.tables_replicated, copies.wanted(0.0)) == (3, None)
    copies.note_report("b", 100, 0.1, tables=3)
    assert copies.wanted(0.1) == frozenset({"a", "b"})


def test_changes_of_tables_wait_for_a_copy_that_is_about_to_join() -> None:
    copies = _alone()
    copies.note_own(100, 100, 0.0, tables=3)
    copies.note_report("b", 100, 0.0, tables=3)
    copies.note_own(100, 100, 0.1, tables=4)
    assert copies.tables_replicated == 3
    copies.note_own(100, 100, NEAR_S, tables=4)
    assert copies.tables_replicated == 4
    assert copies.wanted(NEAR_S) is None


def test_a_member_without_the_tables_leaves_after_the_time_of_one_without_the_log() -> None:
    copies = _alone()
    copies.note_own(100, 100, 0.0, tables=3)
    copies.note_report("b", 100, 0.0, tables=3)
    _publish(copies, 0.0)
    copies.note_lost("b")
    copies.note_report("b", 100, 1.0, tables=0)  # connected again
    assert (copies.tables_replicated, copies.wanted(1.0)) == (0, None)
    late = BEHIND_MAX_S + 1.1
    copies.note_own(100, 100, late, tables=3)
    assert copies.wanted(late) == frozenset({"a"})
    _publish(copies, late)
    assert copies.tables_replicated == 3


def test_a_copy_joins_with_the_log_that_the_leader_began_with_at_least() -> None:
    copies = _alone("c")
    copies.note_own(100, 100, 0.0)
    copies.note_report("b", 50, 0.0)
    assert (copies.confirmed, copies.wanted(0.0)) == (0, None)
    copies.note_report("b", 100, 0.1)
    assert copies.wanted(0.1) == frozenset({"a", "b", "c"})


def test_a_member_that_is_behind_leaves_soon_while_the_lead_is_handed_over_to_another() -> None:
    copies = _pair()
    copies.note_report("c", 100, 0.0)
    _publish(copies, 0.0)
    copies.note_own(200, 200, 0.1)
    copies.note_report("b", 200, 0.1)
    late = NEAR_S + 0.1
    copies.note_own(200, 200, late)
    assert (copies.confirmed, copies.wanted(late)) == (100, None)
    copies.successor = "b"
    assert copies.wanted(NEAR_S) is None
    assert copies.wanted(late) == frozenset({"a", "b"})
    _publish(copies, late)
    assert copies.confirmed == 200


def test_the_successor_stays_while_it_receives_what_it_lacks() -> None:
    copies = _pair()
    copies.note_own(200, 200, 0.1)
    copies.successor = "b"
    assert copies.wanted(BEHIND_MAX_S) is None
    assert copies.wanted(BEHIND_MAX_S + 0.1) == frozenset({"a"})


def test_a_copy_that_is_near_is_waited_for_and_joins_under_load() -> None:
    copies = _alone()
    copies.note_own(100, 100, 0.0)
    copies.note_report("b", 100, 0.0)
    copies.note_own(200, 200, 0.1)
    assert copies.confirmed == 100
    copies.note_own(200, 200, NEAR_S)
    assert copies.confirmed == 200


def test_the_slowest_member_confirms() -> None:
    copies = _pair()
    copies.note_own(200, 150, 1.0)
    assert copies.confirmed == 100
    copies.note_report("b", 140, 1.0)
    assert (copies.confirmed, copies.replicated) == (140, 140)
    copies.note_report("b", 200, 1.0)
    assert (copies.confirmed, copies.replicated) == (150, 200)


def test_a_copy_joins_once_it_has_all_that_producers_have_a_reply_for() -> None:
    copies = _pair()
    copies.note_report("c", 100, 0.0)
    copies.note_own(200, 200, 0.5)
    copies.note_report("b", 200, 0.5)
    assert (copies.confirmed, copies.replicated) == (100, 200)
    assert copies.wanted(0.5) is None
    copies.note_lost("b")
    assert copies.wanted(0.5) == frozenset({"a"})
    copies.note_report("c", 200, 0.6)
    assert copies.wanted(0.6) == frozenset({"a", "c"})


def test_a_member_that_is_behind_for_too_long_leaves_once_that_is_published() -> None:
    copies = _pair()
    copies.note_own(200, 200, 1.0)
    copies.note_report("b", 150, BEHIND_MAX_S)
    assert copies.wanted(BEHIND_MAX_S) is None
    late = BEHIND_MAX_S + 1.1
    copies.note_report("b", 160, late)
    assert copies.wanted(late) == frozenset({"a"})
    copies.begin(frozenset("a"))
    copies.note_own(200, 200, late)
    assert copies.confirmed == 160
    copies.settle(frozenset("a"), late)
    assert (copies.confirmed, copies.replicated) == (200, None)


def test_a_member_stays_while_nothing_is_stored() -> None:
    copies = _pair()
    copies.note_own(100, 100, 1000.0)
    assert copies.wanted(1000.0) is None


def test_a_lost_member_counts_until_its_leaving_is_published() -> None:
    copies = _pair()
    copies.note_lost("b")
    copies.note_own(200, 200, 1.0)
    assert (copies.confirmed, copies.wanted(1.0)) == (100, frozenset({"a"}))
    _publish(copies, 1.0)
    assert copies.confirmed == 200


def test_a_member_that_is_lost_before_it_has_reported_stays_until_its_time_is_over() -> None:
    copies = _alone("b")
    copies.note_lost("b")
    copies.note_own(100, 100, BEHIND_MAX_S)
    assert (copies.confirmed, copies.wanted(BEHIND_MAX_S)) == (0, None)
    assert copies.wanted(BEHIND_MAX_S + 1) == frozenset({"a"})


def test_a_change_whose_publication_is_unsure_counts_both_sets() -> None:
    copies = _alone()
    copies.note_own(100, 100, 0.0)
    copies.note_report("b", 100, 0.0)
    copies.begin(frozenset("ab"))
    copies.note_lost("b")
    copies.note_own(200, 200, 50.0)
    assert copies.confirmed == 100
    assert copies.wanted(50.0) == frozenset({"a"})
    _publish(copies, 50.0)
    assert copies.confirmed == 200


def test_members_of_the_time_before_may_connect_for_a_while() -> None:
    copies = _alone("b", "c")
    copies.note_own(100, 100, 1.0)
    assert (copies.confirmed, copies.wanted(1.0)) == (0, None)
    copies.note_report("b", 100, 1.0)
    assert copies.wanted(BEHIND_MAX_S + 1) == frozenset({"a", "b"})


def test_a_member_that_has_lost_what_it_acknowledged_leaves() -> None:
    copies = _pair()
    copies.note_report("b", 40, 1.0)
    assert (copies.confirmed, copies.wanted(1.0)) == (100, frozenset({"a"}))


def test_the_lag_in_time_is_since_the_copy_had_all() -> None:
    copies = _pair()
    copies.note_own(200, 200, 3.0)
    assert copies.lag_s("b", 5.0) == 5.0
    copies.note_report("b", 200, 6.0)
    assert (copies.lag_s("b", 6.0), copies.lag_s("c", 6.0)) == (0.0, None)


class InSyncOverTime(RuleBasedStateMachine):
    """The set of a leader over any order of events; publications may fail, and take effect."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.end = self.flushed = 0
        self.disks = {"b": 0, "c": 0}
        self.connected: set[str] = set()
        self.published = frozenset("a")
        self.before = self.replied = 0
        self.set = _alone()

    @rule(size=st.integers(1, 50), flushes=st.booleans(), seconds=st.floats(0, 20))
    def store(self, size: int, *, flushes: bool, seconds: float) -> None:
        self.now += seconds
        self.end += size
        self.flushed = self.end if flushes else self.flushed
        self.set.note_own(self.end, self.flushed, self.now)

    @rule(name=st.sampled_from("bc"), share=st.floats(0, 1))
    def report(self, name: str, share: float) -> None:
        self.disks[name] += int((self.end - self.disks[name]) * share)
        self.connected.add(name)
        self.set.note_report(name, self.disks[name], self.now)

    @precondition(lambda self: self.connected)
    @rule(data=st.data())
    def lose(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.connected)))
        self.connected.remove(name)
        self.set.note_lost(name)

    @rule(seconds=st.floats(0, 20), takes_effect=st.booleans(), is_known=st.booleans())
    def publish(self, seconds: float, *, takes_effect: bool, is_known: bool) -> None:
        self.now += seconds
        names = self.set.wanted(self.now)
        if names is None:
            return
        self.set.begin(names)
        if takes_effect:
            self.published = names
            if is_known:
                self.set.settle(names, self.now)

    @invariant()
    def every_published_member_has_what_is_confirmed(self) -> None:
        disks = {"a": self.flushed, **self.disks}
        assert "a" in self.published
        assert self.set.confirmed <= min(disks[name] for name in self.published)
        assert self.set.confirmed >= self.before
        self.before = self.set.confirmed

    @invariant()
    def every_published_member_has_what_producers_have_a_reply_for(self) -> None:
        self.replied = max(self.replied, self.set.replicated or 0)
        others = self.published - {"a"}
        assert all(self.disks[name] >= self.replied for name in others)


TestInSyncOverTime = InSyncOverTime.TestCase
