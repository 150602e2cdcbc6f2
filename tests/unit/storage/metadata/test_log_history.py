"""The common part of two logs: found by epochs, whatever elections, crashes and copies came."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.storage.errors import LeaderLogRefused
from mqstore.storage.metadata.log_history import (
    EPOCHS_MAX,
    NEVER_ELECTED,
    Epoch,
    LogHistory,
    begun,
    common_end,
)

REPLICAS = 3
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["elect", "append", "append", "copy", "copy", "lose", "expire"]),
        st.integers(0, REPLICAS - 1),
        st.integers(1, 5),
    ),
    max_size=60,
)


@dataclass
class Replica:
    """A log whose every byte is known by the epoch and the place in which it was made."""

    log: list[tuple[int, int]] = field(default_factory=list)
    start: int = 0
    epochs: tuple[Epoch, ...] = NEVER_ELECTED

    @property
    def history(self) -> LogHistory:
        return LogHistory("log", self.epochs, self.start, len(self.log))

    def begin(self, number: int) -> None:
        self.epochs = begun(self.epochs, Epoch(number, len(self.log)), self.start)

    def common(self, other: Replica) -> int:
        """Number of first bytes that both have."""
        pairs = zip(self.log, other.log, strict=False)
        return next(
            (at for at, (a, b) in enumerate(pairs) if a != b), min(len(self.log), len(other.log))
        )


@given(STEPS)
def test_the_common_part_is_all_that_two_logs_share(
    steps: list[tuple[str, int, int]],
) -> None:
    replicas = [Replica() for _ in range(REPLICAS)]
    leader, newest, made = 0, 1, 0
    replicas[leader].begin(newest)
    for step, number, count in steps:
        replica = replicas[number]
        if step == "elect":  # of any replica, also one that lacks bytes
            leader, newest = number, newest + 1
            replica.begin(newest)
        elif step == "append":
            made += 1
            replicas[leader].log += [(newest, made + each) for each in range(count)]
            made += count
        elif step == "lose" and number != leader:
            kept = max(replica.start, len(replica.log) - count)
            del replica.log[kept:]
        elif step == "lose":  # a leader begins an epoch when it comes back
            del replica.log[max(replica.start, len(replica.log) - count) :]
            newest += 1
            replica.begin(newest)
        elif step == "expire":
            replica.start = min(len(replica.log), replica.start + count)
        elif number != leader:
            _copy(replicas[leader], replica, count)


def _copy(leader: Replica, replica: Replica, count: int) -> None:
    shared = leader.common(replica)
    try:
        end = common_end(leader.history, replica.history)
    except LeaderLogRefused as error:
        assert error.reason == "no-common-epoch"
        assert leader.start or replica.start or shared == 0
        return
    if replica.start < len(replica.log):
        assert end == shared
    if end < leader.start or end > len(leader.log):
        return
    del replica.log[end:]
    replica.epochs = leader.epochs
    replica.log += leader.log[end : end + count]


def test_a_follower_keeps_what_it_has_where_the_leader_has_it_too() -> None:
    leader = LogHistory("log", (Epoch(0, 0), Epoch(1, 100), Epoch(2, 300)), 0, 500)
    for end, epochs in ((50, 1), (100, 2), (300, 3), (500, 3)):
        follower = LogHistory("log", leader.epochs[:epochs], 0, end)
        assert common_end(leader, follower) == end


def test_the_tail_that_a_later_leader_lacks_is_no_common_part() -> None:
    leader = LogHistory("log", (Epoch(1, 0), Epoch(2, 300)), 0, 500)
    assert common_end(leader, LogHistory("log", (Epoch(1, 0),), 0, 450)) == 300
    behind = LogHistory("log", (Epoch(1, 0), Epoch(2, 300)), 0, 600)
    assert common_end(leader, behind) == 500


def test_an_epoch_with_two_begins_is_not_common() -> None:
    leader = LogHistory("log", (Epoch(1, 0), Epoch(2, 300)), 0, 500)
    other = LogHistory("log", (Epoch(1, 0), Epoch(2, 350)), 0, 400)
    assert common_end(leader, other) == 300


def test_two_stores_that_begin_the_same_epoch_have_none_of_it_in_common() -> None:
    before = (Epoch(1, 0),)
    leader = LogHistory("log", (*before, Epoch(2, 300, "a")), 0, 500)
    assert common_end(leader, LogHistory("log", (*before, Epoch(2, 300, "b")), 0, 400)) == 300


@pytest.mark.parametrize(
    ("follower", "reason"),
    [
        (LogHistory("other", (Epoch(1, 0),), 0, 10), "another-store"),
        (LogHistory("log", (Epoch(3, 0),), 0, 10), "stale-leader"),
        (LogHistory("log", (Epoch(3, 0),), 0, 0), "stale-leader"),
        (LogHistory("log", (Epoch(1, 5),), 0, 10), "no-common-epoch"),
        (LogHistory("log", (Epoch(1, 0),), 310, 320), "no-common-epoch"),
    ],
)
def test_a_leader_whose_log_is_not_this_one_is_refused(follower: LogHistory, reason: str) -> None:
    leader = LogHistory("log", (Epoch(1, 0), Epoch(2, 300)), 0, 500)
    with pytest.raises(LeaderLogRefused) as refused:
        common_end(leader, follower)
    assert refused.value.reason == reason


def test_a_log_of_unknown_origin_is_compared_by_epochs() -> None:
    leader = LogHistory("log", (Epoch(0, 0), Epoch(2, 300)), 0, 500)
    assert common_end(leader, LogHistory(None, NEVER_ELECTED, 0, 400)) == 300


def test_an_empty_log_of_another_store_follows() -> None:
    leader = LogHistory("log", (Epoch(0, 0), Epoch(2, 300)), 100, 500)
    assert common_end(leader, LogHistory("other", NEVER_ELECTED, 0, 0)) == 0


def test_epochs_without_bytes_are_forgotten() -> None:
    epochs = begun(NEVER_ELECTED, Epoch(1, 0), 0)
    assert epochs == (Epoch(0, 0), Epoch(1, 0))
    assert begun(epochs, Epoch(2, 0), 0) == (Epoch(0, 0), Epoch(2, 0))
    assert begun((Epoch(0, 0), Epoch(4, 90)), Epoch(5, 70), 0) == (Epoch(0, 0), Epoch(5, 70))
    assert begun((Epoch(0, 0), Epoch(4, 90)), Epoch(5, 200), 90) == (Epoch(4, 90), Epoch(5, 200))
    many: tuple[Epoch, ...] = NEVER_ELECTED
    for number in range(1, EPOCHS_MAX + 50):
        many = begun(many, Epoch(number, number), 0)
    assert len(many) == EPOCHS_MAX
    assert many[-1] == Epoch(EPOCHS_MAX + 49, EPOCHS_MAX + 49)
