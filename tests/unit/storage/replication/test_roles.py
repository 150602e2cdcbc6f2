"""Decisions of a replica whose shard elects its leader."""

from __future__ import annotations

import pytest

from mqstore.storage.replication.election import Addresses, Lease
from mqstore.storage.replication.roles import (
    NEAR,
    Ended,
    Following,
    Leading,
    Role,
    Waiting,
    choose_successor,
    next_role,
    why_not_take,
)

AT = Addresses("http://b:8081", "b:10912")


def held(holder: str, epoch: int = 3) -> Lease:
    return Lease(holder, epoch, AT, ("a", "b"))


FOLLOWING = Following(3, "b", AT)


@pytest.mark.parametrize(
    ("present", "lease", "leads", "expected"),
    [
        (Waiting(), None, False, Waiting()),
        (Waiting(), Lease("", 3), False, Waiting()),
        (Waiting(), held("b"), False, FOLLOWING),
        (Waiting(), held("a"), True, Leading(3)),
        (Waiting(), held("a"), False, Waiting()),
        (FOLLOWING, held("b"), False, FOLLOWING),
        (FOLLOWING, held("b", 4), False, Following(4, "b", AT)),
        (FOLLOWING, Lease("", 3), False, FOLLOWING),
        (FOLLOWING, held("a", 4), True, Leading(4)),
        (Leading(3), held("a"), True, Leading(3)),
    ],
)
def test_a_replica_follows_the_holder_of_the_lease_or_leads(
    present: Role, lease: Lease | None, expected: Role, *, leads: bool
) -> None:
    assert next_role(present, "a", lease, leads=leads) == expected


@pytest.mark.parametrize(
    ("lease", "leads"), [(held("a"), False), (held("b", 4), False), (held("a", 4), True)]
)
def test_a_leader_that_lost_its_epoch_ends_for_good(lease: Lease, *, leads: bool) -> None:
    ended = next_role(Leading(3), "a", lease, leads=leads)
    assert isinstance(ended, Ended)
    assert next_role(ended, "a", held("a", 5), leads=True) is ended


@pytest.mark.parametrize("lease", [None, Lease("", 0)])
def test_a_new_shard_is_led_first_by_its_founder(lease: Lease | None) -> None:
    assert why_not_take(lease, "a", is_founder=True, newest_epoch=0) is None
    why = why_not_take(lease, "a", is_founder=False, newest_epoch=0)
    assert why is not None and "another replica founds" in why


def test_a_store_that_was_led_does_not_trust_a_new_lease() -> None:
    why = why_not_take(None, "a", is_founder=True, newest_epoch=7)
    assert why is not None and "mqstore/in-sync" in why and "7" in why
    named = Lease("", 0, in_sync=("a",))
    assert why_not_take(named, "a", is_founder=False, newest_epoch=7) is None


def test_only_a_replica_in_sync_takes_the_lease() -> None:
    assert why_not_take(held("b"), "a", is_founder=False, newest_epoch=3) is None
    why = why_not_take(held("b"), "c", is_founder=True, newest_epoch=0)
    assert why == "this replica is not in sync; a, b may lead"


def test_the_follower_that_has_most_succeeds_unless_another_is_wanted() -> None:
    acknowledged = {"p-1/x": 90 + NEAR, "p-2/y": 89, "p-3/z": 99 + NEAR}
    in_sync = ("p-0/w", "p-1/x", "p-2/y", "p-4/v")
    assert choose_successor(acknowledged, in_sync, "p-0/w", None) == "p-1/x"
    for wanted in ("p-2", "p-2/y"):
        assert choose_successor(acknowledged, in_sync, "p-0/w", wanted) == "p-2/y"
    for wanted in ("p-0", "p-3", "p-4", "p-9"):
        with pytest.raises(ValueError, match=f"{wanted} is connected and in sync; in sync"):
            choose_successor(acknowledged, in_sync, "p-0/w", wanted)
    with pytest.raises(ValueError, match="no follower"):
        choose_successor({}, in_sync, "p-0/w", None)


def test_of_followers_with_about_as_much_the_one_succeeds_that_a_rollout_restarts_last() -> None:
    in_sync = ("p-0/w", "p-1/x", "p-2/y")
    assert choose_successor({"p-1/x": 90, "p-0/w": 80}, in_sync, "p-2/y", None) == "p-0/w"
    assert choose_successor({"p-1/x": 90, "p-2/y": 95}, in_sync, "p-0/w", None) == "p-1/x"
