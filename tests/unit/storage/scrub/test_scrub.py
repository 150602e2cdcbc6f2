"""A pass over the checksums of a store: what it finds, how it is paced, what survives a restart."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqstore.storage.config import DamageRepair
from mqstore.storage.errors import RecordBlockCorrupt, StoreNotWritable
from mqstore.storage.layout import BLOCK_SIZE
from mqstore.storage.message_store import MessageStore
from mqstore.storage.scrub.service import Scrub
from tests.unit.storage.stores import CONFIG, open_store, put_some

SMALL = CONFIG.model_copy(
    update={"scrub_bytes_per_second": BLOCK_SIZE, "damage_repair": DamageRepair.MANUAL}
)
FLAG_AT = 16


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    """Some segments of one block each, closed and opened again; the test steps the scrub."""
    with open_store(tmp_path / "store", SMALL) as filled:
        filled.create_topic("T", queues=3)
        put_some(filled, 900)
    with open_store(tmp_path / "store", SMALL) as opened:
        yield opened


def run_pass(scrub: Scrub) -> list[float]:
    """How long it rests after each step, until the pass is over."""
    rests = [scrub.step(0.0)]
    while scrub.progress.position is not None:
        rests.append(scrub.step(0.0))
    return rests


def hurt(store: MessageStore, number: int) -> int:
    """Flip a bit in the flag of a segment's first record; where."""
    file = store.log.files.files[number]
    file.view[FLAG_AT] ^= 0x40
    return file.base_offset + FLAG_AT


def test_a_whole_store_has_no_findings(store: MessageStore) -> None:
    rests = run_pass(store.scrub)
    progress = store.scrub.progress
    assert progress.checked_bytes == sum(f.wrote_position for f in store.log.files.files)
    assert (progress.finding_count, progress.findings) == (0, ())
    assert progress.last_pass_ended_at_ms is not None
    assert rests[0] == pytest.approx(1.0), "a block a second, as the setting says"


def test_what_the_disk_changed_is_found_and_served_no_more(store: MessageStore) -> None:
    first = store.lookups.by_physical_offset(store.log.files.files[1].base_offset)
    place = hurt(store, 1)
    assert store.lookups.by_physical_offset(first.physical_offset), "its block was whole before"

    run_pass(store.scrub)

    (found,) = store.scrub.progress.findings
    assert (found.offset, found.length, found.field) == (place, 1, "FLAG")
    assert found.record_offset == first.physical_offset
    own = first.topic, first.queue_id, first.queue_offset
    assert (found.topic, found.queue_id, found.queue_offset) == own
    with pytest.raises(RecordBlockCorrupt):
        store.lookups.by_physical_offset(first.physical_offset)


def test_a_finding_is_reported_once_and_removed_after_the_repair(store: MessageStore) -> None:
    hurt(store, 0)
    epochs = [store.state.epoch]
    for _ in range(2):
        run_pass(store.scrub)
        epochs.append(store.state.epoch)
        assert store.scrub.progress.finding_count == 1
        store.scrub.request()
    assert epochs[1] > epochs[0]
    assert epochs[2] == epochs[1]
    hurt(store, 0)
    while store.scrub.progress.findings:  # a pass within the same millisecond proves nothing
        store.scrub.request()
        run_pass(store.scrub)
    assert store.scrub.progress.finding_count == 0


def test_progress_and_findings_survive_a_restart(store: MessageStore, tmp_path: Path) -> None:
    hurt(store, 0)
    store.scrub.step(0.0)
    before = store.scrub.progress
    assert before.finding_count == 1
    store.close()
    with open_store(tmp_path / "store", SMALL) as again:
        assert again.scrub.progress.findings == before.findings
        assert again.scrub.progress.position is not None


def test_a_note_that_cannot_be_read_counts_as_none(store: MessageStore, tmp_path: Path) -> None:
    run_pass(store.scrub)
    store.close()
    path = tmp_path / "store" / "mqstore" / "scrub.json"
    raw = bytearray(path.read_bytes())
    raw[-5] ^= 1
    path.write_bytes(raw)
    with open_store(tmp_path / "store", SMALL) as again:
        assert again.scrub.progress.began_at_ms == 0


def test_what_a_broker_may_have_changed_is_no_finding(store: MessageStore, tmp_path: Path) -> None:
    hurt(store, 0)
    store.close()
    lock = tmp_path / "store" / "lock"
    later = lock.stat().st_mtime + 60  # it writes its lock at each start
    os.utime(lock, (later, later))
    with open_store(tmp_path / "store", SMALL) as again:
        run_pass(again.scrub)
        assert again.scrub.progress.findings == ()


def test_the_next_pass_waits_for_its_time_or_for_a_request(store: MessageStore) -> None:
    run_pass(store.scrub)
    assert store.scrub.step(5.0) == 5.0 + 3_600
    assert store.scrub.progress.position is None
    store.scrub.request()
    assert store.scrub.step(5.0) > 5.0
    assert store.scrub.progress.position is not None


def test_no_rate_is_no_scrub(tmp_path: Path) -> None:
    config = CONFIG.model_copy(update={"scrub_bytes_per_second": 0})
    with open_store(tmp_path / "store", config) as store:
        assert store.scrub.step(1.0) == math.inf


def test_an_open_store_scrubs_by_itself_only_with_scrubs(tmp_path: Path) -> None:
    with open_store(tmp_path / "store", scrubs=True) as store:
        assert store.run_scrub() is not None
    with open_store(tmp_path / "copy", scrubs=True, leader="a:1") as follower:
        assert follower.run_scrub() is not None
    with open_store(tmp_path / "store") as store, pytest.raises(StoreNotWritable):
        store.run_scrub()


def hurt_blocks(store: MessageStore) -> int:
    """Flip a bit in each block of the log; returns their number."""
    count = 0
    for file in store.log.files.files:
        for start in range(0, file.wrote_position, BLOCK_SIZE):
            file.view[start + FLAG_AT] ^= 0x40
            count += 1
    return count


def test_findings_of_one_step_are_reported_and_saved_once(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    count = hurt_blocks(store)
    saves: list[int] = []
    monkeypatch.setattr(store.scrub, "_save", lambda: saves.append(1))
    for file in store.log.files.files:
        for start in range(0, file.wrote_position, BLOCK_SIZE):
            store.scrub.report(file.base_offset + start)

    store.scrub._check_reported(count)

    assert store.scrub.progress.finding_count == count > 1
    assert saves == [1]


def test_a_store_with_unlisted_damage_only_is_closed(
    store: MessageStore, caplog: pytest.LogCaptureFixture
) -> None:
    """A repair took all listed findings, and more were counted: min() had no offset."""
    store.scrub._change(finding_count=3, findings=())
    store.close()
    assert "closed with 3 damaged places in its log:" in caplog.text
