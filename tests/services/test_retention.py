"""Retention over the network: the plan, the trigger, pins, and a small disk that really fills."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from mqstore.client import Client, NewMessage, ProblemError
from mqstore.storage.retention.plan import RetentionPlan
from mqstore.wire.examples import stores as examples
from mqstore.wire.retention import Pins
from tests.long_runs import few_first
from tests.services.service_processes import ANY_DISK, Process, query, writer

SEGMENT = 1 << 20
BODY = b"x" * (200 << 10)
WAIT_S = 30.0
ANY_AGE = {"clean_file_forcibly_min_age": 0}
EVERY_HOUR = ";".join(map(str, range(24)))


def _small(**settings: object) -> dict[str, object]:
    """Settings of a store whose files are small beside the disk."""
    return {
        "mapped_file_size_commit_log": SEGMENT,
        "mapped_file_size_consume_queue": 20_000,
        "max_hash_slot_num": 1000,
        "max_index_num": 5000,
        "clean_resource_interval": 100,
        "delete_commit_log_files_interval": 1,
        "disk_max_used_space_ratio": 75,
        "disk_space_clean_forcibly_ratio": 85,
        "disk_space_warning_level_ratio": 90,
        **settings,
    }


def _fill(client: Client, segments: int) -> None:
    client.create_topic("t", queues=1)
    while client.store().segments < segments:
        client.produce("t", [NewMessage(body=BODY)], durability="async")


def _plan(one: Process) -> RetentionPlan:
    response = httpx.get(f"{one.url}/v1/store/retention").raise_for_status()
    return RetentionPlan.model_validate(response.json())


def _age(store: Path, hours: float) -> None:
    """Date all segments back."""
    then = time.time() - hours * 3600
    for path in (store / "commitlog").iterdir():
        os.utime(path, (then, then))


def _await_segments(client: Client, at_most: int) -> None:
    deadline = time.monotonic() + WAIT_S
    while client.store().segments > at_most:
        assert time.monotonic() < deadline, client.segments()
        time.sleep(0.02)


def test_examples_are_what_the_service_answers() -> None:
    RetentionPlan.model_validate(examples.RETENTION)
    Pins.model_validate(examples.PINS)


def test_what_would_go_is_shown_and_goes_by_hand(tmp_path: Path) -> None:
    store = tmp_path / "store"
    hour = str((time.localtime().tm_hour + 12) % 24)
    with writer(store, **_small(delete_when=hour, **ANY_DISK)) as one, Client(one.url) as client:
        _fill(client, 4)
        assert [each.why.value for each in _plan(one).segments][:3] == ["in-time"] * 3
        _age(store, 100)
        before = _plan(one)
        assert [each.why.value for each in before.segments] == ["hour"] * 3 + ["newest"]
        assert before.segments[0].not_before_ms == before.next_hour_ms > before.made_ms
        assert client.retention(limit=2).segments[1]["why"] == "hour"
        assert client.run_retention().triggers == ("manual",)
        _await_segments(client, 1)
        metrics = httpx.get(f"{one.url}/metrics").text
        assert 'mqstore_segments_deleted_total{why="expired"} 3.0' in metrics
        assert "rocketmq_brokeruntime_commitlog_disk_ratio 0." in metrics


def test_a_pin_keeps_its_range_until_it_is_ended(tmp_path: Path) -> None:
    store = tmp_path / "store"
    settings = _small(delete_when=EVERY_HOUR)
    with writer(store, **settings) as one, Client(one.url) as client:
        _fill(client, 4)
        url = f"{one.url}/v1/store/pins/backup-1"
        made = httpx.put(url, json={"fromOffset": SEGMENT, "why": "a test"})
        assert made.status_code == 201
        assert httpx.put(url, json={"fromOffset": SEGMENT}).status_code == 200
        _age(store, 100)
        _await_segments(client, 3)
        held = _plan(one).segments[0]
        assert (held.why.value, held.held_by) == ("held", ("pin backup-1",))
        gone = httpx.put(f"{one.url}/v1/store/pins/late", json={"fromOffset": 0})
        assert (gone.status_code, gone.json()["type"]) == (409, "urn:mqstore:problem:pin-refused")
        again = client.put_pin("backup-1", 2 * SEGMENT, lease_s=60)
        assert client.pins().pins == (again,)
        assert client.pin("backup-1") == again
        assert "mqstore_pins 1.0" in httpx.get(f"{one.url}/metrics").text
        assert client.remove_pin("backup-1") is not None
        assert httpx.get(url).json()["type"] == "urn:mqstore:problem:pin-unknown"
        _await_segments(client, 1)


def test_a_reader_that_goes_on_where_the_log_has_expired_gets_410(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with (
        writer(store, **_small(delete_when=EVERY_HOUR)) as one,
        query(store) as find,
        Client(one.url, find.url) as client,
    ):
        _fill(client, 4)
        page = client.messages_by_time("t", limit=1, order="oldest")
        with contextlib.closing(client.follow("t", from_ms=0)) as events:
            seen = next(events)
        _age(store, 100)
        _await_segments(client, 1)
        calls: list[Callable[[], object]] = [
            lambda: client.messages_by_time("t", limit=1, order="oldest", cursor=page.next),
            lambda: next(client.follow("t", after=seen.id)),
        ]
        for call in calls:
            with pytest.raises(ProblemError) as caught:
                call()
            assert (caught.value.status, caught.value.type) == (410, "message-expired")
        again = client.messages_by_time("t", order="oldest")
        assert again.complete and again.messages[0].physical_offset >= 3 * SEGMENT


def test_retention_waits_for_the_archive_until_that_is_ended(tmp_path: Path) -> None:
    store, url = tmp_path / "store", "file:///archive"
    with writer(store, **_small(delete_when=EVERY_HOUR)) as one, Client(one.url) as client:
        _fill(client, 4)
        client.flush()
        assert client.archive().archive is None
        assert "mqstore_archive_behind_bytes 0.0" in httpx.get(f"{one.url}/metrics").text
        mark = client.put_archive(SEGMENT, url).archive
        assert mark is not None
        assert client.archive().archive == mark
        assert "mqstore_archive_behind_bytes 0.0" not in httpx.get(f"{one.url}/metrics").text
        _age(store, 100)
        _await_segments(client, 3)
        held = _plan(one).segments[0]
        assert (held.why.value, held.held_by) == ("held", (f"archive {url}",))
        for offset, place in ((0, url), (1 << 40, url), (2 * SEGMENT, "another-place")):
            with pytest.raises(ProblemError) as refused:
                client.put_archive(offset, place)
            assert (refused.value.status, refused.value.type) == (409, "archive-refused")
        client.put_archive(2 * SEGMENT, url)
        _await_segments(client, 2)
        client.end_archive()
        _await_segments(client, 1)


def test_only_administrators_pin_and_delete(tmp_path: Path) -> None:
    tokens = {"token_admin": "a" * 32, "token_consume": "c" * 32}
    with writer(tmp_path / "store", **tokens) as one:

        def status(method: str, path: str, token: str, **more: object) -> int:
            headers = {"authorization": f"Bearer {token * 32}"}
            response = httpx.request(method, one.url + path, headers=headers, **more)  # type: ignore[arg-type]  # passed through
            return response.status_code

        assert status("GET", "/v1/store/retention", "c") == 200
        assert status("POST", "/v1/store/retention:run", "c") == 403
        assert status("POST", "/v1/store/retention:run", "a") == 202
        body = {"json": {"fromOffset": 0}}
        assert status("PUT", "/v1/store/pins/job", "c", **body) == 403
        assert status("PUT", "/v1/store/pins/job", "a", **body) == 201
        assert status("DELETE", "/v1/store/pins/job", "c") == 403
        mark = {"json": {"offset": 0, "place": "x"}}
        assert status("PUT", "/v1/store/archive", "a", **mark) == 403  # a job's, role system
        assert status("DELETE", "/v1/store/archive", "c") == 403


def test_a_disk_that_fills_is_507_with_its_numbers_until_there_is_room(small_disk: Path) -> None:
    store = small_disk / "store"
    settings = _small(clean_file_forcibly_enable=False)
    with writer(store, **settings) as one, Client(one.url) as client:
        client.create_topic("t", queues=1)
        problem = _produce_until_refused(client)
        assert (problem.status, problem.type) == (507, "disk-full")
        disk = problem.problem["disk"]
        assert disk["usedPercent"] > 90
        assert disk["usedBytes"] + disk["freeBytes"] == disk["totalBytes"] == 40 << 20
        assert (disk["refusedAbovePercent"], disk["acceptedAtPercent"]) == (90, 85)
        plan = _plan(one)
        assert plan.puts_refused
        assert "disk" in [each.value for each in plan.triggers]
        assert plan.segments[0].why.value == "in-time"
        _age(store, 100)
        _await_stored(client)
        assert client.store().min_offset > 0


@pytest.mark.parametrize("small", few_first(["commitlog", "consumequeue"]))
def test_the_volumes_of_log_and_queues_count_each_by_itself(
    small: str, small_disk: Path, tmp_path: Path
) -> None:
    (small_disk / "ballast").write_bytes(bytes(37 << 20))
    log, store = (small_disk, tmp_path) if small == "commitlog" else (tmp_path, small_disk)
    paths = {"store_path_commit_log": log / "log"}
    settings = _small(**paths)
    with (
        writer(store / "store", status="not-ready", **settings) as one,
        Client(one.url) as client,
    ):
        client.create_topic("t", queues=1)
        problem = _produce_until_refused(client)
        assert problem.problem["disk"]["volume"] == small
        by_name = {volume.name: volume for volume in _plan(one).volumes}
        assert by_name[small].total_bytes == 40 << 20
        assert min(volume.used_percent for volume in by_name.values()) < 90
        (small_disk / "ballast").unlink()
        _await_stored(client)


@pytest.mark.slow
def test_a_disk_above_the_second_ratio_lets_go_of_messages_in_time(small_disk: Path) -> None:
    store = small_disk / "store"
    with writer(store, **_small(**ANY_AGE)) as one, Client(one.url) as client:
        client.create_topic("t", queues=1)
        deadline = time.monotonic() + WAIT_S
        while client.store().min_offset == 0:
            assert time.monotonic() < deadline
            with contextlib.suppress(ProblemError):  # no room for a segment, for a moment
                client.produce("t", [NewMessage(body=BODY)], durability="async")
        metrics = httpx.get(f"{one.url}/metrics").text
        assert 'mqstore_segments_deleted_total{why="forced"} 0.0' not in metrics
        assert 'mqstore_segments_deleted_total{why="expired"} 0.0' in metrics


@pytest.mark.slow
def test_beside_a_query_that_maps_everything_only_what_is_needed_goes(small_disk: Path) -> None:
    """Segments go only because of a ballast, and only as many as it takes the room of."""
    store = small_disk / "store"
    settings = _small(clean_resource_interval=1_000, disk_space_warning_level_ratio=100)
    with (
        writer(store, **settings) as one,
        query(store, **settings) as other,
        Client(one.url, other.url) as client,
    ):
        _fill(client, 12)
        _age(store, 2)
        assert httpx.get(f"{other.url}/v1/topics/t/queues/0/messages").status_code == 200
        usage = os.statvfs(small_disk)
        above = usage.f_blocks * usage.f_frsize * 85 // 100 + SEGMENT + (SEGMENT >> 1)
        used = (usage.f_blocks - usage.f_bfree) * usage.f_frsize
        (small_disk / "ballast").write_bytes(bytes(above - used))
        deadline = time.monotonic() + WAIT_S
        while _plan(one).volumes[0].used_percent > 85:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        forced = (each for each in client.events() if each.kind == "forced-deletion")
        assert next(forced).data["segment"] is None
        forced.close()
        assert client.store().segments >= 11
        assert not any(each.unlinked_bytes for each in _plan(one).volumes)


def _produce_until_refused(client: Client) -> ProblemError:
    """By the ratio: produced slowly enough that the disk is looked at in between."""
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        try:
            client.produce("t", [NewMessage(body=BODY)], durability="async")
        except ProblemError as error:
            if "usedPercent" in error.problem.get("disk", {}):
                return error
            time.sleep(0.02)  # no room for a segment: the ratio is seen with the next look
    raise AssertionError("the disk never filled")


def _await_stored(client: Client) -> None:
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        try:
            client.produce("t", [NewMessage(body=BODY)], durability="async")
            return
        except ProblemError as error:
            assert error.status == 507
            time.sleep(0.02)
    raise AssertionError("puts never came back")
