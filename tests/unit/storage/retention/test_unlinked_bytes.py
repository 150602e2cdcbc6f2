from __future__ import annotations

from mqstore.storage.retention.unlinked_bytes import DOUBT_MAX_S, SHOWN_WITHIN_S, UnlinkedBytes


def looked(used: int = 1000) -> UnlinkedBytes:
    unlinked = UnlinkedBytes()
    unlinked.settle(used, 0, 0)
    return unlinked


def test_unlinked_bytes_count_until_the_volume_shows_them() -> None:
    unlinked = looked()
    unlinked.add(100, 1)
    unlinked.add(50, 2)
    assert unlinked.settle(1000, 0, 3) == 0
    assert unlinked.left == 150
    unlinked.settle(900, 0, 4)
    assert unlinked.left == 50
    unlinked.settle(850, 0, 5)
    assert unlinked.left == 0


def test_a_file_made_meanwhile_does_not_hide_what_was_freed() -> None:
    unlinked = looked()
    unlinked.add(100, 1)
    unlinked.settle(1000, 100, 2)
    assert unlinked.left == 0


def test_what_is_not_shown_in_time_is_said_once_and_counts_no_more() -> None:
    unlinked = looked()
    unlinked.add(100, 1)
    assert unlinked.settle(1000, 0, SHOWN_WITHIN_S) == 0
    assert unlinked.settle(1000, 0, 1 + SHOWN_WITHIN_S) == 100
    assert unlinked.left == 0
    assert unlinked.settle(1000, 0, 2 + SHOWN_WITHIN_S) == 0


def test_a_small_rest_is_what_other_files_grew_by() -> None:
    unlinked = looked()
    unlinked.add(100, 1)
    unlinked.settle(940, 0, 2)
    assert unlinked.settle(940, 0, 1 + SHOWN_WITHIN_S) == 0
    assert not unlinked.doubts(2 + SHOWN_WITHIN_S)


def test_doubt_lasts_longer_after_each_deletion_that_made_no_room() -> None:
    unlinked, now, waits = looked(), 0.0, []
    for _ in range(8):
        unlinked.add(100, now)
        now += SHOWN_WITHIN_S
        unlinked.settle(1000, 0, now)
        began = now
        while unlinked.doubts(now):
            now += 1
        waits.append(now - began)
    assert waits[:3] == [SHOWN_WITHIN_S, 2 * SHOWN_WITHIN_S, 4 * SHOWN_WITHIN_S]
    assert waits[-1] == DOUBT_MAX_S


def test_in_doubt_one_deletion_is_waited_for_and_room_ends_the_doubt() -> None:
    unlinked = looked()
    unlinked.add(100, 0)
    unlinked.settle(1000, 0, SHOWN_WITHIN_S)
    now = 2 * SHOWN_WITHIN_S
    assert not unlinked.doubts(now)
    unlinked.add(100, now)
    assert unlinked.doubts(now + 1)
    unlinked.settle(900, 0, now + 2)
    assert not unlinked.doubts(now + 2)
