"""The table of queues over the directory tree."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqstore.storage.paths import StorePaths
from mqstore.storage.queues.consume_queues import ConsumeQueues, queue_key, split_key
from mqstore.storage.system.threads import production_seams


def open_queues(root: Path, *, writable: bool = True) -> ConsumeQueues:
    queues = ConsumeQueues(StorePaths(root), 200, production_seams(), writable=writable)
    queues.load()
    return queues


def put(queues: ConsumeQueues, topic: str, queue_id: int, count: int, start: int = 0) -> None:
    queue = queues.get_or_create(topic, queue_id)
    assert queue is not None
    for index in range(start, start + count):
        queue.put(index, index * 100, 100, 0)


def test_queues_are_found_again_from_the_tree(tmp_path: Path) -> None:
    queues = open_queues(tmp_path)
    places = [("%LMQ%client0", 0), ("%RETRY%group-a", 0), ("a|b_c", 3), ("a|b_c", 11)]
    for topic, queue_id in places:
        put(queues, topic, queue_id, 12)
    queues.flush()

    again = open_queues(tmp_path)

    assert [(queue.topic, queue.queue_id, queue.max_index) for queue in again.all()] == [
        (topic, queue_id, 12) for topic, queue_id in places
    ]
    assert again.topics() == ["%LMQ%client0", "%RETRY%group-a", "a|b_c"]
    assert [queue.queue_id for queue in again.of_topic("a|b_c")] == [3, 11]
    assert again.of_topic("a") == []
    again.destroy("%LMQ%client0", 0)
    assert again.topics() == ["%RETRY%group-a", "a|b_c"]
    put(again, "%LMQ%client0", 0, 12)
    assert set(again.windows) == {queue_key(topic.encode(), q) for topic, q in places}


def test_what_belongs_to_no_queue_is_reported(tmp_path: Path) -> None:
    put(open_queues(tmp_path), "topic", 0, 1)
    tree = tmp_path / "consumequeue"
    (tree / "file").write_text("")
    (tree / "topic" / "007").mkdir()
    (tree / "topic" / "note").write_text("")
    (tree / "topic" / "0" / "x").write_text("")

    strays = ConsumeQueues(StorePaths(tmp_path), 200, production_seams()).load()

    assert sorted(str(stray.path.relative_to(tree)) for stray in strays) == [
        "file",
        "topic/0/x",
        "topic/007",
        "topic/note",
    ]


@pytest.mark.parametrize(
    ("topic", "queue_id"), [("../x", 0), ("", 0), ("a/b", 0), ("a.b", 0), ("ok", -1), ("ok", 2**31)]
)
def test_unsafe_places_are_never_made(tmp_path: Path, topic: str, queue_id: int) -> None:
    assert open_queues(tmp_path).get_or_create(topic, queue_id) is None


def test_a_directory_with_an_unusual_name_is_loaded_as_it_is(tmp_path: Path) -> None:
    put(open_queues(tmp_path), "topic", 0, 1)
    (tmp_path / "consumequeue/topic").rename(tmp_path / "consumequeue/主题.x")

    queues = open_queues(tmp_path)

    assert queues.topics() == ["主题.x"]
    assert queues.get_or_create("主题.x", 0) is queues.get("主题.x", 0)


def test_a_destroyed_queue_leaves_no_directory_behind(tmp_path: Path) -> None:
    queues = open_queues(tmp_path)
    put(queues, "topic", 0, 12)
    put(queues, "topic", 1, 1)

    queues.destroy("topic", 0)
    assert [path.name for path in (tmp_path / "consumequeue/topic").iterdir()] == ["1"]
    queues.destroy("topic", 1)
    queues.destroy("never", 1)

    assert list((tmp_path / "consumequeue").iterdir()) == []
    assert queues.windows == {}


def test_expiry_goes_over_all_queues(tmp_path: Path) -> None:
    queues = open_queues(tmp_path)
    put(queues, "a", 0, 25)
    put(queues, "b", 0, 5)

    assert list(queues.delete_before(1_500)) == [1]

    assert [(queue.min_index, queue.max_index) for queue in queues.all()] == [(15, 25), (5, 5)]


def test_the_next_named_offset_is_the_least_of_all_queues(tmp_path: Path) -> None:
    queues = open_queues(tmp_path)
    put(queues, "a", 0, 3)
    put(queues, "b", 0, 2, start=8)

    assert queues.next_physical(-1) == 0
    assert queues.next_physical(100) == 200
    assert queues.next_physical(200) == 800
    assert queues.next_physical(900) is None
    assert queues.max_physical_end() == 1_000


def test_a_key_names_topic_and_signed_queue_id() -> None:
    assert queue_key(b"t", 1) == b"t\x00\x00\x00\x01"
    assert split_key(queue_key("主".encode(), -2)) == ("主", -2)
