"""Puts that do not wait: the files that they need are made ahead."""

from __future__ import annotations

import errno
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from mqstore.storage.codec import properties
from mqstore.storage.errors import FilePending, SegmentCreationFailed
from mqstore.storage.message_store import MessageStore, StoreOptions
from mqstore.storage.paths import segment_name
from mqstore.storage.system.posix_files import PosixFileSystem
from mqstore.storage.system.threads import production_seams
from tests.unit.storage.puts import put_message
from tests.unit.storage.stores import CONFIG, abandon, all_bodies, bodies, message, open_store

FILE = CONFIG.mapped_file_size_consume_queue
ENTRIES = FILE // 20
QUEUE = Path("consumequeue", "T", "0")


def files_of(root: Path) -> list[str]:
    return sorted(path.name for path in (root / QUEUE).glob("*"))


def put(store: MessageStore, numbers: Iterable[int], topic: str = "T") -> None:
    """As one batch; segments are made as they are needed. Raises FilePending for a queue's file."""
    messages = [message(store, number, topic=topic) for number in numbers]
    while True:
        try:
            store.append(messages, as_batch=True)
        except FilePending as pending:
            if pending.path.parent != store.paths.commit_log:
                raise
            pending.make()
        else:
            return


def pending(store: MessageStore, numbers: Iterable[int], topic: str = "T") -> FilePending:
    end = store.log.max_offset
    with pytest.raises(FilePending) as caught:
        put(store, numbers, topic)
    assert store.log.max_offset == end
    return caught.value


def test_new_queue_gets_its_file_before_its_first_message(tmp_path: Path) -> None:
    with open_store(tmp_path, waits_for_files=False) as store:
        pending(store, [0]).make()
        assert files_of(tmp_path) == [segment_name(0)]
        assert store.queues.get("T", 0) is None
        assert [topic.name for topic in store.topics()] == []
        put(store, [0])
        assert store.dispatcher.behind == 0
        assert bodies(store, queues=1) == all_bodies(1)


def test_the_next_file_of_a_queue_is_requested_at_its_bound(tmp_path: Path) -> None:
    with open_store(tmp_path, waits_for_files=False) as store:
        pending(store, [0]).make()
        put(store, range(ENTRIES))
        pending(store, [ENTRIES]).make()
        put(store, [ENTRIES])
        assert store.dispatcher.behind == 0
        assert bodies(store, queues=1) == all_bodies(ENTRIES + 1)
    assert files_of(tmp_path) == [segment_name(0), segment_name(FILE)]


def test_nothing_is_made_for_a_put_that_comes_while_the_store_closes(tmp_path: Path) -> None:
    with open_store(tmp_path, waits_for_files=False) as store:
        store.queues.end_ahead()
        assert store.queues.get_or_prepare("T", 0) is None
    assert files_of(tmp_path) == []


def test_further_queues_get_their_files_before_a_message_names_them(tmp_path: Path) -> None:
    config = CONFIG.model_copy(update={"enable_multi_dispatch": True})
    with open_store(tmp_path, config, waits_for_files=False) as store:
        further = "".join(f"Q{number}," for number in range(20))
        named = message(store, 0).replace(
            properties=properties.encode(
                {"KEYS": "k", "INNER_MULTI_DISPATCH": further},
                trailing_separator=store.format.trailing_property_separator,
            ),
        )
        requested = 0
        while True:
            try:
                store.append(named)
                break
            except FilePending as pending:
                requested += 1
                assert store.queues.all() == []
                pending.make()
        made = len(list((tmp_path / "consumequeue").iterdir()))
        assert (requested, made) == (2, 21), "the segment, then all of the queues at once"
        assert store.dispatcher.behind == 0
        assert [queue.max_index for queue in store.queues.all()] == [1] * 21


def test_a_batch_that_goes_over_a_bound_requests_all_its_files(tmp_path: Path) -> None:
    with open_store(tmp_path, waits_for_files=False) as store:
        numbers = range(ENTRIES + 1)
        pending(store, numbers).make()
        put(store, numbers)
        assert store.dispatcher.behind == 0
        assert bodies(store, queues=1) == all_bodies(len(numbers))


def test_messages_of_many_queues_request_all_their_files_at_once(tmp_path: Path) -> None:
    with open_store(tmp_path, waits_for_files=False) as store:
        run = [message(store, number, queue_id=number) for number in range(3)]
        for place in ("consumequeue/T/0", "commitlog"):
            with pytest.raises(FilePending) as caught:
                store.append(run)
            assert caught.value.path.parent == tmp_path / place
            caught.value.make()
        store.append(run)
        assert bodies(store) == all_bodies(3)


def test_a_file_that_is_requested_twice_is_made_once(tmp_path: Path) -> None:
    with open_store(tmp_path, waits_for_files=False) as store:
        first, second = pending(store, [0]), pending(store, [0])
        assert first.path == second.path
        first.make()
        second.make()
        put(store, range(2))
        assert bodies(store, queues=1) == all_bodies(2)


def test_queue_that_a_deletion_left_behind_is_not_made_again(tmp_path: Path) -> None:
    with open_store(tmp_path, waits_for_files=False) as store:
        store.create_topic("T", queues=1)
        made, late = pending(store, [0]), pending(store, [0])
        made.make()
        store.delete_topic("T")
        late.make()
        assert not (tmp_path / "consumequeue" / "T").exists()
        store.create_topic("T", queues=1)
        pending(store, [1]).make()
        put(store, [1])
        assert bodies(store, queues=1) == {b"body 1 " * 10}


def test_next_file_that_a_deletion_left_behind_is_not_made_again(tmp_path: Path) -> None:
    with open_store(tmp_path, waits_for_files=False) as store:
        store.create_topic("T", queues=1)
        pending(store, [0]).make()
        put(store, range(ENTRIES))
        made, late = pending(store, [ENTRIES]), pending(store, [ENTRIES])
        made.make()
        store.delete_topic("T")
        late.make()
        assert not (tmp_path / "consumequeue" / "T").exists()


def test_file_that_no_put_came_to_goes_at_the_close(tmp_path: Path) -> None:
    with open_store(tmp_path, waits_for_files=False) as store:
        pending(store, [0], "other").make()
        pending(store, [0]).make()
        put(store, range(ENTRIES))
        pending(store, [ENTRIES]).make()
    assert files_of(tmp_path) == [segment_name(0)]
    assert not (tmp_path / "consumequeue" / "other").exists()


def test_file_that_a_kill_left_without_entries_is_taken_as_nothing(tmp_path: Path) -> None:
    store = open_store(tmp_path, waits_for_files=False)
    pending(store, [0]).make()
    put(store, range(ENTRIES))
    pending(store, [ENTRIES]).make()
    pending(store, [0], "other").make()
    store.queues._ahead.clear()  # as after a kill: nothing is tidied up
    store.queues.all()[0].files._ahead.clear()
    abandon(store)
    with open_store(tmp_path) as again:
        assert bodies(again, queues=1) == all_bodies(ENTRIES)
        put_message(again, message(again, ENTRIES))
        put_message(again, message(again, 0, topic="other"))
        assert bodies(again, queues=1) == all_bodies(ENTRIES + 1)
        assert bodies(again, topic="other", queues=1) == all_bodies(1)
        assert again.dispatcher.counts.defects == again.dispatcher.counts.refused == 0


def test_store_that_refuses_puts_makes_no_files(tmp_path: Path) -> None:
    with open_store(tmp_path, waits_for_files=False) as store:
        store.log.refuse_puts("closing", "the store is closing")
        with pytest.raises(Exception, match="the store is closing") as caught:
            store.append(message(store, 0))
        assert not isinstance(caught.value, FilePending)
    assert not (tmp_path / "consumequeue" / "T").exists()


class FullFiles(PosixFileSystem):
    """Has no room for further queue files while ``is_full``."""

    is_full = False

    def create(
        self, path: Path, size: int, *, reserve: int | None = None, sync: bool = True
    ) -> None:
        if self.is_full and size == FILE:
            raise OSError(errno.ENOSPC, "No space left on device")
        super().create(path, size, reserve=reserve, sync=sync)


def test_file_that_cannot_be_made_refuses_the_put_and_the_next_may_succeed(tmp_path: Path) -> None:
    files = FullFiles()
    options = StoreOptions(waits_for_files=False)
    seams = replace(production_seams(), files=files)
    with MessageStore.open(tmp_path, CONFIG, seams, options) as store:
        files.is_full = True
        with pytest.raises(SegmentCreationFailed, match=r"T/0/0+ cannot be made.*No space left"):
            pending(store, [0]).make()
        files.is_full = False
        pending(store, [0]).make()
        put(store, [0])
        assert bodies(store, queues=1) == all_bodies(1)


def test_delayed_message_is_delivered_to_a_queue_that_is_new(tmp_path: Path) -> None:
    """The service that delivers makes its files itself."""
    with open_store(tmp_path, waits_for_files=False, deliver_delayed=False) as store:
        store._parts.appends.put_copy(message(store, 0))
        assert bodies(store, queues=1) == all_bodies(1)
