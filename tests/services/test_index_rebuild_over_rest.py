"""An index rebuilt over REST, beside producers and readers that know nothing of it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mqstore.client import Client, IndexRebuild, NewMessage, ProblemError, part_frames
from mqstore.storage.config import StoreConfig
from mqstore.storage.index.plan import Layout
from mqstore.storage.metadata import writer_note
from mqstore.storage.paths import StorePaths
from mqstore.storage.system.posix_files import PosixFileSystem
from mqstore.storage.system.threads import production_seams
from mqstore.storage.verify import Verification
from tests.services.service_processes import ANY_DISK, service_pair, writer
from tests.unit.storage.rebuild_job import Scan, Segment

SETTINGS: dict[str, Any] = {
    **ANY_DISK,
    "mapped_file_size_commit_log": 64 << 10,
    "mapped_file_size_consume_queue": 20_000,
    "max_hash_slot_num": 500,
    "max_index_num": 1000,
}


class Job:
    def __init__(self, client: Client, store: Path, rebuild: IndexRebuild, parts: int = 2) -> None:
        self.client = client
        self.rebuild = rebuild
        self.scan = Scan(Layout(rebuild.hash_slots, rebuild.index_num, rebuild.tags), parts)
        self.scan.read(self._segments(store / "commitlog"))

    def _segments(self, log: Path) -> Iterator[tuple[Segment, memoryview, int]]:
        for segment in self.rebuild.segments:
            base = int(segment.name)
            content = (log / segment.name).read_bytes()[: segment.end - base]
            yield segment, memoryview(content), base

    def fill(self) -> None:
        self.client.plan_index_rebuild(self.rebuild.id, self.scan.plan_json)
        for part in range(self.scan.parts):
            frames = part_frames(self.scan.part(part))
            assert self.client.send_index_part(self.rebuild.id, part, frames).items == (
                self.scan.count(part)
            )


@contextlib.contextmanager
def producing(client: Client, topic: str, first: int) -> Iterator[list[str]]:
    """Keys of what was acknowledged, more and more; that many by the beginning."""
    keys: list[str] = []
    begun, ended = threading.Event(), threading.Event()

    def produce() -> None:
        while not ended.is_set():
            key = f"key-{len(keys)}"
            client.produce(topic, [NewMessage(body="b" * 50, keys=(key,))], durability="async")
            keys.append(key)
            if len(keys) == first:
                begun.set()

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        assert begun.wait(60)
        yield keys
    finally:
        ended.set()
        thread.join()


@pytest.mark.slow
def test_every_key_is_found_all_the_while_an_index_is_rebuilt(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with service_pair(store, **SETTINGS) as run, run.client() as client, run.client() as other:
        client.create_topic("orders", queues=2)
        with producing(other, "orders", first=700) as keys:
            for _ in range(2):  # the second one over the first one's files
                job = Job(client, store, client.begin_index_rebuild("a test", ttl_s=600))
                job.fill()
                published = client.publish_index_rebuild(job.rebuild.id)
                assert published == client.publish_index_rebuild(job.rebuild.id)
                assert published.items == job.scan.plan.firsts[-1]
                for number in range(0, len(keys), 50):
                    found = client.messages_by_key("orders", keys[number])
                    assert (len(found.messages), found.complete) == (1, True), number
        last = client.index_rebuilds().last
        assert last is not None
        assert (last.outcome, last.owner) == ("published", "a test")
        assert client.pins().pins == ()
        run.stop()
    verification = Verification(store, StoreConfig(), production_seams())
    assert list(verification.findings()) == []


def test_a_second_job_is_refused_with_the_first_ones_name(tmp_path: Path) -> None:
    with service_pair(tmp_path / "store", **SETTINGS) as run, run.client() as client:
        rebuild = client.begin_index_rebuild("the first", ttl_s=600)
        with pytest.raises(ProblemError) as refused:
            client.begin_index_rebuild("the second")
        assert refused.value.type == "index-rebuild-running"
        assert refused.value.problem["running"]["owner"] == "the first"
        assert client.renew_index_rebuild(rebuild.id, ttl_s=600).id == rebuild.id
        client.end_index_rebuild(rebuild.id)
        with pytest.raises(ProblemError) as unknown:
            client.renew_index_rebuild(rebuild.id)
        assert unknown.value.type == "index-rebuild-unknown"
        assert client.begin_index_rebuild("the second").owner == "the second"


def test_what_cannot_be_of_a_rebuild_is_refused_and_the_rebuild_goes_on(tmp_path: Path) -> None:
    with service_pair(tmp_path / "store", **SETTINGS) as run, run.client() as client:
        client.create_topic("t", queues=1)
        client.produce("t", [NewMessage(keys=(f"k{number}",)) for number in range(50)])
        with pytest.raises(ProblemError, match="pattern"):
            client.begin_index_rebuild("of two\nlines")
        rebuild = client.begin_index_rebuild("the job", ttl_s=600)
        with pytest.raises(ProblemError, match="there is no plan yet"):
            client.send_index_part(rebuild.id, 0, part_frames([]))
        job = Job(client, tmp_path / "store", rebuild)
        plan = job.scan.plan_json
        wrongs: list[dict[str, Any]] = [
            {"parts": 10**9},
            {"parts": -1},
            {"starts": []},
            {"starts": [5]},
            {"firsts": [0, 10**12]},
            {"files": [plan["files"][0] | {"items": 10**11}]},
            {"files": [plan["files"][0] | {"end": [-3, 5]}]},
        ]
        for wrong in wrongs:
            with pytest.raises(ProblemError) as refused:
                client.plan_index_rebuild(rebuild.id, {**plan, **wrong})
            assert refused.value.status == 422, wrong
        client.plan_index_rebuild(rebuild.id, plan)
        found = ((part, *each) for part in range(job.scan.parts) for each in job.scan.part(part))
        part, start, items = next(each for each in found if each[2])
        for frames in (
            [b"no frame" * 99],
            [bytes(1 << 20)],
            list(part_frames([(start + 1, items)])),
            list(part_frames([(start, items[:24]), (start, items)])),
            list(part_frames([(start, items)]))[:-1],
        ):
            with pytest.raises(ProblemError) as refused:
                client.send_index_part(rebuild.id, part, frames)
            assert refused.value.status == 422, frames
        with pytest.raises(ProblemError, match="index-rebuild-refused"):
            client.publish_index_rebuild(rebuild.id)
        job.fill()
        client.publish_index_rebuild(rebuild.id)
        assert client.messages_by_key("t", "k7").messages[0].keys == ("k7",)


def test_a_living_writer_is_found_by_the_path_of_its_store(tmp_path: Path) -> None:
    files, paths = PosixFileSystem(), StorePaths(tmp_path / "store")
    with writer(paths.root, **SETTINGS) as process:
        note = writer_note.load(files, paths)
        assert note is not None
        assert (note.url, note.pid) == (process.url, process.process.pid)
        process.kill()
        assert paths.writer_note.exists()
        assert writer_note.load(files, paths) is None
    with service_pair(paths.root, **SETTINGS) as run:
        run.stop()
    assert not paths.writer_note.exists()
