"""A follower takes over the deletions that its leader has noted."""

from __future__ import annotations

import pytest

from mqstore.storage.metadata.deleted_topics import DeletedTopic, Deletions, adopted

START, END = 100, 500
"""The bounds of the follower's log."""


def deletions(*, expired: int = 0, **offsets: int) -> Deletions:
    """The note of each topic by its offset."""
    notes = (
        DeletedTopic(topic=topic, offset=offset, deleted_ms=1, queues={0: 7})
        for topic, offset in sorted(offsets.items())
    )
    return Deletions(topics=tuple(notes), expired=expired)


@pytest.mark.parametrize(
    ("own", "leader", "dropped", "is_incomplete"),
    [
        ({}, {}, (), False),
        ({"T": 300}, {"T": 300}, (), False),
        ({}, {"T": 500}, ("T",), False),
        ({}, {"T": 900}, ("T",), False),
        ({"T": 300}, {"T": 500}, ("T",), False),
        ({}, {"T": 300}, ("T",), False),
        ({"T": 500}, {}, (), True),
        ({"T": 900, "U": 200}, {"U": 200}, (), True),
        ({"T": 400}, {"T": 300}, (), True),
        ({"T": 900}, {"T": 500}, (), False),
        ({"T": 100}, {}, (), False),
        ({}, {"T": 100}, (), False),
    ],
)
def test_the_notes_become_those_of_the_leader(
    own: dict[str, int], leader: dict[str, int], dropped: tuple[str, ...], is_incomplete: bool
) -> None:
    found = adopted(deletions(**own), deletions(**leader), START, END)
    assert found.deletions.topics == deletions(**leader).topics
    assert (found.dropped, found.deletions.queues_incomplete) == (dropped, is_incomplete)


def test_a_note_that_the_leader_removed_after_retention_stays() -> None:
    own, leader = deletions(T=300, U=400), deletions(expired=350)
    found = adopted(own, leader, START, END)
    assert found.deletions.topics == deletions(T=300).topics
    assert found.deletions.expired == 350
    assert found.deletions.queues_incomplete, "of U"


def test_queues_stay_incomplete_until_an_opening() -> None:
    once = adopted(deletions(T=300), deletions(), START, END).deletions
    assert adopted(once, deletions(T=300), START, END).deletions.queues_incomplete
