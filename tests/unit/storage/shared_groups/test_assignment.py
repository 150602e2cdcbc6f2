"""Fair and sticky assignments of queues to members."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from mqstore.storage.shared_groups.assignment import Queue, assign

MEMBERS = st.sets(st.sampled_from("abcdefg"), min_size=1)


def queues(count: int) -> list[Queue]:
    return [Queue("T", each) for each in range(count)]


def all_of(members: set[str]) -> dict[str, tuple[str]]:
    return dict.fromkeys(members, ("T",))


def sizes(assigned: dict[Queue, str], members: set[str]) -> list[int]:
    counts = Counter(assigned.values())
    return [counts[each] for each in sorted(members)]


@given(count=st.integers(0, 20), shard=st.integers(0, 9), lives=st.lists(MEMBERS, min_size=1))
def test_members_have_equal_numbers_of_queues_and_few_move(
    count: int, shard: int, lives: list[set[str]]
) -> None:
    known: dict[Queue, str] = {}
    for members in lives:
        found = assign(queues(count), all_of(members), known, shard)
        assert found.keys() == set(queues(count))
        assert max(sizes(found, members)) - min(sizes(found, members)) <= 1
        shares = Counter(found.values())
        kept = {queue: name for queue, name in known.items() if name in members}
        excess = sum((Counter(kept.values()) - shares).values())
        assert sum(found[queue] != name for queue, name in kept.items()) == excess
        known = found


@given(count=st.integers(1, 12), members=MEMBERS, before=MEMBERS)
def test_over_as_many_shards_as_members_all_have_the_same_number(
    count: int, members: set[str], before: set[str]
) -> None:
    total: Counter[str] = Counter()
    for shard in range(len(members)):
        first = assign(queues(count), all_of(before), {}, shard)
        total += Counter(assign(queues(count), all_of(members), first, shard).values())
    assert total == dict.fromkeys(members, count)


@given(wanted=st.dictionaries(st.sampled_from("abc"), st.sets(st.sampled_from("TUV"))))
def test_a_member_gets_queues_of_its_topics_only(wanted: dict[str, set[str]]) -> None:
    every = [Queue(topic, each) for topic in "TUV" for each in range(4)]
    found = assign(every, wanted, {}, 0)
    assert all(queue.topic in wanted[name] for queue, name in found.items())
    assert {each.topic for each in found} == set().union(*wanted.values())
