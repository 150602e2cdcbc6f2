"""Files that queues begin, left by a put to another thread."""

from __future__ import annotations

from pathlib import Path

from mqstore.storage.message_store import Durability
from tests.unit.storage.stores import CONFIG, all_bodies, bodies, message, open_store, put_some

ENTRIES = CONFIG.mapped_file_size_consume_queue // 20


def test_a_put_that_begins_a_file_says_so_and_is_readable_once_it_is_made(tmp_path: Path) -> None:
    with open_store(tmp_path, new_files_inline=False) as store:
        placed = store.append(message(store, 0))
        store.make_readable(placed.end)
        assert store.dispatcher.file_due_at == placed.physical_offset
        assert not store.waits_for_file(placed.physical_offset, placed.end)
        assert bodies(store, queues=1) == all_bodies(1)
        second = store.append(message(store, 1))
        assert store.dispatcher.position == second.end
        assert not store.waits_for_file(second.physical_offset, second.end)


def test_queues_go_over_from_file_to_file_as_ever(tmp_path: Path) -> None:
    count = 3 * ENTRIES + 5
    with open_store(tmp_path, new_files_inline=False) as store:
        put_some(store, count, queues=1)
        store.make_readable(store.log.max_offset)
        assert bodies(store, queues=1) == all_bodies(count)
        assert store.dispatcher.counts.defects == store.dispatcher.counts.refused == 0


def test_what_is_put_behind_such_a_message_does_not_wait_for_the_file(tmp_path: Path) -> None:
    with open_store(tmp_path, new_files_inline=False) as store:
        store.put(message(store, 0), Durability.ASYNC)
        store.make_readable(store.log.max_offset)
        with store.dispatcher._running():  # as long as somebody makes the file
            first = store.append(message(store, 1, queue_id=1))
            second = store.append(message(store, 2))
            assert not store.waits_for_file(second.physical_offset, second.end)
        store.make_readable(second.end)
        assert store.queues.get("T", 1) is not None
        assert store.dispatcher.position == second.end > first.end
