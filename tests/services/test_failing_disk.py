"""store-writer on a disk that stalls or refuses: what it answers, and how it ends."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from mqstore.client import Client, NewMessage, ProblemError, Target
from tests import forked_processes
from tests.services.service_processes import (
    START_TIMEOUT_S,
    Process,
    await_ready,
    environment,
    query,
    service,
)

pytestmark = pytest.mark.slow

FAILING_WRITER = "tests.services.failing_writer"
WAITING = 10
"""Requests that wait for one sync."""


class Disk:
    """The disk under a writer of this test (``failing_writer``)."""

    def __init__(self, directory: Path) -> None:
        self.marker = directory / "disk"
        self.store = directory / "store"
        self.message = directory / "termination-message"

    @contextlib.contextmanager
    def writer(self, **settings: Any) -> Iterator[Process]:
        settings.setdefault("termination_message_path", self.message)
        with service(Target.WRITER, ["-m", FAILING_WRITER], self.store, **settings) as process:
            yield process

    def refused_start(self, module: str) -> int:
        """Start a writer that cannot start, and return its exit code."""
        given = {"store": self.store, "termination_message_path": self.message, "writer_port": 0}
        process = forked_processes.start(module, environment=environment(**given))
        process.communicate(START_TIMEOUT_S)
        return process.wait()

    def stall(self) -> None:
        self.marker.write_text("stall")

    def fail(self) -> None:
        self.marker.write_text("fail")

    def heal(self) -> None:
        self.marker.unlink()


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    found = Disk(tmp_path)
    monkeypatch.setenv("FAILING_DISK_MARKER", str(found.marker))
    return found


def _produce(url: str, body: str, **options: Any) -> ProblemError | None:
    """Error of a sync produce; None if it succeeds."""
    with Client(url) as client:
        try:
            client.produce("t", [NewMessage(body=body, **options)], durability="sync")
        except ProblemError as error:
            return error
    return None


def test_a_sync_that_takes_too_long_is_answered_with_where_the_messages_stand(disk: Disk) -> None:
    with disk.writer(sync_flush_timeout=200) as one, Client(one.url) as client:
        client.create_topic("t", queues=1)
        client.produce("t", [NewMessage(body="first")], durability="async")
        disk.stall()
        sent = [NewMessage(body="a", uniq_key="A"), NewMessage(body="b")]
        with pytest.raises(ProblemError) as caught:
            client.produce("t", sent, durability="sync")
        disk.heal()
        assert (caught.value.status, caught.value.type) == (504, "flush-timeout")
        first, second = caught.value.problem["messages"]
        (later,) = client.produce("t", [NewMessage(body="later")], durability="async").messages
        assert first["uniqKey"] == "A"
        assert [first["queueOffset"], second["queueOffset"], later.queue_offset] == [1, 2, 3]
        assert second["physicalOffset"] == first["physicalOffset"] + first["size"]
        assert len({first["offsetMsgId"], second["offsetMsgId"], later.offset_msg_id}) == 3


def test_a_repeat_of_what_was_not_known_to_be_durable_waits_for_the_first_one(disk: Disk) -> None:
    with disk.writer(sync_flush_timeout=200) as one, Client(one.url) as client:
        client.create_topic("t", queues=1)
        client.produce("t", [NewMessage(body="first")], durability="async")
        disk.stall()
        named = _timed_out(client, NewMessage(body="a", uniq_key="A"))
        generated = _timed_out(client, NewMessage(body="b"))
        sent = [
            NewMessage(body=body, uniq_key=placed["uniqKey"])
            for body, placed in (("a", named), ("b", generated))
        ]
        assert _timed_out(client, sent[0]) == named | {"repeat": True}
        disk.heal()
        again = client.produce("t", sent, durability="sync", patience_s=60.0).messages
        assert all(each.repeat for each in again)
        assert [each.queue_offset for each in again] == [1, 2]


def _timed_out(client: Client, message: NewMessage) -> dict[str, Any]:
    """Offset of the message whose sync produce timed out."""
    with pytest.raises(ProblemError) as caught:
        client.produce("t", [message], durability="sync")
    assert (caught.value.status, caught.value.type) == (504, "flush-timeout")
    (placed,) = caught.value.problem["messages"]
    return dict(placed)


def _refusal(call: Callable[[], object]) -> ProblemError:
    with pytest.raises(ProblemError) as caught:
        call()
    return caught.value


def test_a_store_that_is_being_opened_answers_that_it_is_not_ready(disk: Disk) -> None:
    with disk.writer() as one, Client(one.url) as client:
        client.create_topic("t", queues=1)
        client.produce("t", [NewMessage(body="1")], durability="sync")
        one.kill()
    disk.stall()
    with disk.writer(status="starting") as two, Client(two.url) as client:
        for call in (
            lambda: client.produce("t", [NewMessage(body="refused")]),
            lambda: client.create_topic("other", queues=1),
            client.topics,
            client.store,
        ):
            refusal = _refusal(call)
            assert (refusal.status, refusal.type) == (503, "store-not-ready")
        answer = httpx.post(f"{two.url}/v1/topics/t/messages", json={"messages": [{"body": "x"}]})
        assert answer.headers["retry-after"] == "1"
        disk.heal()
        await_ready(client, Target.WRITER)
        (placed,) = client.produce("t", [NewMessage(body="2")], durability="sync").messages
        assert placed.queue_offset == 1


BUSY_AFTER_MS = 50
SMALL_SEGMENT = 1 << 16
LARGE_BODY = 60_000
"""No segment has room for two of them."""


def test_a_put_that_waits_for_a_segment_keeps_no_other_request_waiting(disk: Disk) -> None:
    with disk.writer(mapped_file_size_commit_log=SMALL_SEGMENT) as one, Client(one.url) as client:
        client.create_topic("t", queues=1)
        large = NewMessage(body="x" * LARGE_BODY)
        client.produce("t", [large], durability="sync")
        disk.stall()  # no further segment is made, but a spare one may be there

        def put_two() -> int:
            with Client(one.url) as other:
                answers = [other.produce("t", [large], durability="async") for _ in range(2)]
            return answers[-1].messages[0].queue_offset

        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(put_two)
            while not waiting.done() and not _waited_ms(one):
                pass
            (small,) = client.produce("t", [NewMessage(body="small")], durability="async").messages
            assert client.store().dispatched_offset == small.physical_offset + small.size
            assert client.health(Target.WRITER).status == "ready"
            assert not waiting.done()
            disk.heal()
            assert waiting.result() == 3
        assert small.queue_offset < 3


def test_the_first_message_of_a_queue_waits_for_no_sync_of_its_file(disk: Disk) -> None:
    with disk.writer() as one, Client(one.url) as client:
        for topic in ("old", "new"):
            client.create_topic(topic, queues=1)
        client.produce("old", [NewMessage(body="1")], durability="async")
        disk.stall()
        for topic in ("new", "old", "new"):
            (last,) = client.produce(topic, [NewMessage(body="2")], durability="async").messages
            assert client.store().dispatched_offset == last.physical_offset + last.size
        disk.heal()


def test_a_put_behind_one_that_waits_for_a_segment_is_refused_as_busy(disk: Disk) -> None:
    settings = {
        "mapped_file_size_commit_log": SMALL_SEGMENT,
        "os_page_cache_busy_time_out_mills": BUSY_AFTER_MS,
        "message_delay_level": "4s",
    }
    with disk.writer(**settings) as one, Client(one.url) as client:
        client.create_topic("t", queues=1)
        large = "x" * LARGE_BODY
        client.produce("t", [NewMessage(body=large)], durability="sync")
        client.produce("t", [NewMessage(body=large, delay_level=1)], durability="sync")
        while not (disk.store / "commitlog" / f"{2 * SMALL_SEGMENT:020}").exists():
            pass
        client.produce("t", [NewMessage(body="small")], durability="sync")
        disk.stall()  # from now on no further segment is made, which the delayed copy needs
        client.produce("t", [NewMessage(body=large)], durability="async")
        while _waited_ms(one) <= BUSY_AFTER_MS:
            pass
        message = NewMessage(body=large, uniq_key="A")
        refusal = _refusal(lambda: client.produce("t", [message], durability="async"))
        assert (refusal.status, refusal.type) == (503, "page-cache-busy")
        disk.heal()
        while _waited_ms(one):
            pass
        (placed,) = client.produce("t", [message], durability="sync").messages
        assert not placed.repeat


def _waited_ms(process: Process) -> float:
    name = "rocketmq_brokeruntime_pagecache_lock_time_mills"
    metrics = httpx.get(f"{process.url}/metrics").text.splitlines()
    return next(float(line.split()[1]) for line in metrics if line.startswith(name + " "))


def test_a_failed_sync_fails_every_waiter_and_ends_the_process_with_its_reason(disk: Disk) -> None:
    with disk.writer(sync_flush_timeout=60_000) as one, Client(one.url) as client:
        client.create_topic("t", queues=1)
        (good,) = client.produce("t", [NewMessage(body="good")], durability="sync").messages
        disk.stall()
        with ThreadPoolExecutor(WAITING) as pool:
            waiting = [pool.submit(_produce, one.url, "lost") for _ in range(WAITING)]
            while client.store().max_offset < (WAITING + 1) * good.size:
                threading.Event().wait(0.01)
            disk.fail()
            refused = [each.result() for each in waiting]
        assert {error.type for error in refused if error} == {"store-failed"}
        assert all(error and "Input/output error" in error.detail for error in refused)
        code, errors = one.ended()
        assert code == 1
        assert "the store failed" in errors
    assert disk.message.read_text().startswith("the store failed: sync of ")
    assert "Input/output error" in disk.message.read_text()
    assert (disk.store / "abort").exists()


def test_a_restart_stays_read_only_until_the_disk_holds(disk: Disk) -> None:
    with disk.writer() as one, Client(one.url) as client:
        client.create_topic("t", queues=1)
        sent = [NewMessage(body="1"), NewMessage(body="2")]
        placed = client.produce("t", sent, durability="async").messages
        one.kill()
    disk.fail()
    with (
        disk.writer(status="not-ready") as two,
        query(disk.store) as reader,
        Client(two.url, reader.url) as client,
    ):
        _expect_read_only(client)
        assert client.message(placed[1].offset_msg_id).body == "2"
        assert client.health(Target.WRITER, "startup").status == "ready"
        metrics = httpx.get(f"{two.url}/metrics").text
        assert "mqstore_store_read_only 1.0" in metrics
        assert "mqstore_openings_refused_total 0.0" not in metrics
        disk.heal()
        await_ready(client, Target.WRITER)
        assert "rewrite-range" in str(client.recovery().plan["actions"])
        (third,) = client.produce("t", [NewMessage(body="3")], durability="sync").messages
        assert third.queue_offset == 2
        pulled = client.pull("t", 0).messages
        assert [each.body for each in pulled] == ["1", "2", "3"]
        two.process.terminate()
        assert two.ended()[0] == 0
    assert not (disk.store / "abort").exists()


def _expect_read_only(client: Client) -> None:
    for change in (
        lambda: client.produce("t", [NewMessage(body="refused")]),
        lambda: client.create_topic("other", queues=1),
    ):
        with pytest.raises(ProblemError) as caught:
            change()
        assert (caught.value.status, caught.value.type) == (503, "disk-refuses")
        assert "Input/output error" in caught.value.detail
    assert [topic.topic for topic in client.topics().topics] == ["t"]
    assert "Input/output error" in str(client.store().read_only_reason)


def test_a_service_that_waits_for_its_disk_ends_in_order(disk: Disk) -> None:
    with disk.writer() as one:
        one.kill()
    disk.fail()
    with disk.writer(status="not-ready") as two:
        two.process.terminate()
        assert two.ended()[0] == 0
    assert (disk.store / "abort").exists()


def test_a_disk_that_refuses_a_new_store_refuses_the_start(disk: Disk) -> None:
    disk.fail()
    assert disk.refused_start(FAILING_WRITER) == 2
    assert "Input/output error" in disk.message.read_text()


def test_a_refused_start_leaves_its_reason(disk: Disk) -> None:
    with disk.writer(termination_message_path=disk.store.parent / "unused"):
        assert disk.refused_start("mqstore.writer") == 2
    assert "is in use by another process" in disk.message.read_text()
    assert not (disk.store.parent / "unused").exists()
