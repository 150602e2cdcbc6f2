"""A broker's store without its log, or without a part of it: refused, and nothing is changed."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from mqstore.storage import accept_loss
from mqstore.storage.errors import (
    DataMissing,
    LossNotAccepted,
    OffsetOutOfRange,
    RecordError,
    RecordExpired,
)
from mqstore.storage.layout import StoreFormat
from mqstore.storage.lost_data import Loss
from mqstore.storage.message_store import Durability, MessageStore
from mqstore.storage.system.threads import production_seams
from mqstore.storage.tables import java_json
from mqstore.storage.verify import Kind, Verification
from tests.unit.storage.puts import put_message
from tests.unit.storage.store_repair.damages import Patient
from tests.unit.storage.stores import (
    CONFIG,
    FILES,
    all_bodies,
    bodies,
    message,
    open_store,
    put_some,
    segments,
    used_segments,
)

COUNT = 900
SEGMENT = CONFIG.mapped_file_size_commit_log
CLOCK = production_seams().clock
READ = 200
"""The offset of the group in each queue."""


@pytest.fixture(scope="module", params=list(StoreFormat))
def original(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("broker") / "store"
    with open_store(root, format=request.param) as store:
        store.create_topic("T", queues=3)
        put_some(store, COUNT)
    shutil.rmtree(root / "mqstore")
    (root / "lock").write_bytes(b"lock")
    offsets = {"offsetTable": {"T@g": {str(queue): READ for queue in range(3)}}}
    (root / "config" / "consumerOffset.json").write_text(json.dumps(offsets))
    (root / "config" / "delayOffset.json").write_text('{"offsetTable":{3:7}}')
    return root


@pytest.fixture
def root(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "store"))


def an_empty_mount(root: Path) -> None:
    for path in segments(root):
        path.unlink()


def no_directory(root: Path) -> None:
    shutil.rmtree(root / "commitlog")


def a_new_file_system(root: Path) -> None:
    an_empty_mount(root)
    (root / "commitlog" / "lost+found").mkdir()


def another_directory(root: Path) -> None:
    (root / "commitlog").rename(root.parent / "log")


def a_segment_of_zeros(root: Path) -> None:
    an_empty_mount(root)
    (root / "commitlog" / f"{0:020d}").write_bytes(bytes(SEGMENT))


def no_last_segments(root: Path) -> None:
    for path in segments(root):
        if path >= used_segments(root)[-1]:
            path.unlink()


def an_older_last_segment(root: Path) -> None:
    last = used_segments(root)[-1]
    last.write_bytes(last.read_bytes()[:9_000].ljust(SEGMENT, b"\0"))


def a_short_last_segment(root: Path) -> None:
    last = used_segments(root)[-1]
    for path in segments(root):
        if path > last:
            path.unlink()
    last.write_bytes(last.read_bytes()[:9_000])


WITHOUT_LOG: list[Callable[[Path], None]] = [
    an_empty_mount,
    no_directory,
    a_new_file_system,
    another_directory,
]
LOSSES: list[Callable[[Path], None]] = [
    *WITHOUT_LOG,
    a_segment_of_zeros,
    no_last_segments,
    an_older_last_segment,
    a_short_last_segment,
]


def everything(root: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(path.relative_to(root)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted(root.rglob("*"))
        if path.is_file() and path.relative_to(root) != Path("mqstore/lock")
    }


def refused(root: Path, text: str) -> Loss:
    before = everything(root)
    with pytest.raises(DataMissing, match=text) as missing:
        open_store(root)
    after = everything(root)
    assert [name for name in after if after[name] != before.get(name)] == []
    assert "set storePathCommitLog" in str(missing.value)
    assert f"accept-loss {root}" in str(missing.value)
    return missing.value.loss


def count_readable(store: MessageStore) -> int:
    """The number of messages of the store's queues that can be read; tombstones are no messages."""
    found = 0
    for queue in store.queues.all():
        for _, entry in queue.entries(0, queue.max_index):
            with suppress(RecordError, OffsetOutOfRange, RecordExpired):
                found += store.log.record_at(entry.physical_offset).body.startswith(b"body")
    return found


def goes_on_without(root: Path, loss: Loss) -> None:
    """Assert that the store is written to without what was lost, now and after another opening."""
    for _ in range(2):
        with open_store(root) as store:
            assert store.read_only_reason is None
            assert count_readable(store) == COUNT - loss.messages


def records_end(root: Path) -> int:
    """The end of the last record that a queue names."""
    end = 0
    for path in (root / "consumequeue").glob("*/*/*"):
        for offset, size, _ in struct.iter_unpack(">qiq", path.read_bytes()):
            end = max(end, offset + size)
    return end


@pytest.mark.parametrize("lose", LOSSES)
def test_queues_that_name_records_beyond_the_log_refuse_the_opening(
    root: Path, lose: Callable[[Path], None]
) -> None:
    end = records_end(root)
    lose(root)
    loss = refused(root, f"queues name records up to offset {end}, and ")
    assert loss.watermark == end
    assert loss.messages == sum(lost.end - lost.first for lost in loss.queues) > 0
    assert {lost.topic for lost in loss.queues} == {"T"}
    assert refused(root, "queues name") == loss


@pytest.mark.parametrize("lose", LOSSES)
def test_verify_and_info_show_what_the_log_lacks(root: Path, lose: Callable[[Path], None]) -> None:
    lose(root)
    before = everything(root)
    found = list(Verification(root, CONFIG, production_seams()).findings())
    missing = [each for each in found if each.kind is Kind.DATA_MISSING]
    assert len(missing) == 1
    assert "queues name records up to" in missing[0].what
    assert everything(root) == before


@pytest.mark.parametrize("lose", LOSSES)
def test_an_accepted_loss_goes_on_above_all_offsets(
    root: Path, lose: Callable[[Path], None]
) -> None:
    end = records_end(root)
    lose(root)
    planned = accept_loss.plan(root, CONFIG, FILES, CLOCK)
    accept_loss.accept(root, CONFIG, FILES, CLOCK, planned.loss.confirmation)
    with open_store(root) as store:
        assert store.read_only_reason is None
        assert store.recovery.accepted_loss == planned.loss
        for queue_id in range(3):
            placed = put_message(store, message(store, 7, queue_id=queue_id), Durability.SYNC)
            assert placed.queue_offset >= COUNT // 3
            assert placed.physical_offset >= end
    with open_store(root) as store:
        assert store.read_only_reason is None


def test_damage_before_an_accepted_loss_is_mended_as_without_the_loss(root: Path) -> None:
    """The opening after a broker's clean stop reads the last three segments."""
    no_last_segments(root)
    with segments(root)[-3].open("r+b") as file:
        file.seek(SEGMENT // 2)
        file.write(bytes(4096))
    loss = accept_loss.plan(root, CONFIG, FILES, CLOCK).loss
    accept_loss.accept(root, CONFIG, FILES, CLOCK, loss.confirmation)
    open_store(root).close()
    found = {each.kind for each in Patient(root).findings()}
    assert not found & {Kind.RECORD_BROKEN, Kind.RECORD_ODD, Kind.RECORD_BODY}


@pytest.mark.parametrize("lose", WITHOUT_LOG)
def test_a_log_that_is_named_opens_as_it_was(root: Path, lose: Callable[[Path], None]) -> None:
    kept = shutil.copytree(root / "commitlog", root.parent / "kept")
    lose(root)
    refused(root, "has no messages")
    with open_store(root, store_path_commit_log=str(kept)) as store:
        assert bodies(store) == all_bodies(COUNT)
    offsets = java_json.parse((root / "config" / "consumerOffset.json").read_text())
    assert set(offsets["offsetTable"]["T@g"].values()) == {READ}


@pytest.mark.parametrize("lose", WITHOUT_LOG)
@pytest.mark.parametrize("left", ["consumerOffset.json", "delayOffset.json", "checkpoint"])
def test_other_files_show_messages_where_the_queues_are_gone_too(
    root: Path, lose: Callable[[Path], None], left: str
) -> None:
    lose(root)
    shutil.rmtree(root / "consumequeue")
    config = root / "config"
    for path in (
        config / "consumerOffset.json",
        config / "delayOffset.json",
        root / "checkpoint",
    ):
        if path.name != left:
            path.unlink()
    loss = refused(root, f"{left} has ")
    accept_loss.accept(root, CONFIG, FILES, CLOCK, loss.confirmation)
    with open_store(root) as store:
        assert store.read_only_reason is None
        least = READ if left == "consumerOffset.json" else 0
        for queue_id in range(3):
            placed = put_message(store, message(store, 7, queue_id=queue_id), Durability.SYNC)
            assert placed.queue_offset >= least


@pytest.mark.parametrize("lose", WITHOUT_LOG)
def test_a_store_without_messages_opens(root: Path, lose: Callable[[Path], None]) -> None:
    lose(root)
    shutil.rmtree(root / "consumequeue")
    (root / "checkpoint").write_bytes(bytes(4096))
    (root / "config" / "delayOffset.json").write_text('{"offsetTable":{3:0}}')
    offsets = {"offsetTable": {"T@g": {"0": 0}}}
    (root / "config" / "consumerOffset.json").write_text(json.dumps(offsets))
    with pytest.raises(LossNotAccepted, match="no message that the log lacks"):
        accept_loss.plan(root, CONFIG, FILES, CLOCK)
    with open_store(root) as store:
        assert put_message(store, message(store, 1)).queue_offset == 0


@pytest.mark.parametrize("lose", [no_last_segments, an_older_last_segment])
def test_a_broker_that_did_not_close_may_have_lost_the_end_of_its_log(
    root: Path, lose: Callable[[Path], None]
) -> None:
    (root / "abort").write_bytes(b"")
    lose(root)
    with open_store(root) as store:
        assert store.read_only_reason is None
        assert bodies(store) < all_bodies(COUNT)


@pytest.mark.parametrize("lose", WITHOUT_LOG)
def test_a_broker_that_did_not_close_has_a_log(root: Path, lose: Callable[[Path], None]) -> None:
    (root / "abort").write_bytes(b"")
    lose(root)
    refused(root, "queues name records up to")


@pytest.mark.parametrize("lose", WITHOUT_LOG)
def test_a_broker_that_had_a_store_of_ours_leaves_a_log(
    root: Path, lose: Callable[[Path], None]
) -> None:
    open_store(root).close()
    (root / "lock").write_bytes(b"lock")
    (root / "checkpoint").touch()
    lose(root)
    refused(root, "queues name records up to")


@pytest.mark.parametrize("is_killed", [False, True])
def test_segments_missing_between_others_refuse_the_opening(root: Path, is_killed: bool) -> None:
    if is_killed:
        (root / "abort").write_bytes(b"")
    segments(root)[1].unlink()
    loss = refused(root, f"no segment has the offsets {SEGMENT} to {2 * SEGMENT} between others")
    assert loss.segments == (f"{SEGMENT:020d}",)
    assert 0 < loss.messages < COUNT

    accept_loss.accept(root, CONFIG, FILES, CLOCK, loss.confirmation)
    goes_on_without(root, loss)


def test_a_broker_that_had_a_store_of_ours_leaves_no_gap(root: Path) -> None:
    open_store(root).close()
    (root / "lock").write_bytes(b"lock")
    (root / "checkpoint").touch()
    segments(root)[1].unlink()
    refused(root, "between others")


def test_an_accepted_gap_is_known_where_format_json_is_lost(root: Path) -> None:
    segments(root)[1].unlink()
    loss = refused(root, "between others")
    accept_loss.accept(root, CONFIG, FILES, CLOCK, loss.confirmation)
    open_store(root).close()
    (root / "mqstore" / "format.json").unlink()
    with open_store(root) as store:
        assert store.read_only_reason is None


def test_queues_that_name_records_below_the_log_are_as_retention_leaves_them(root: Path) -> None:
    segments(root)[0].unlink()  # each first queue file names records behind it too
    with open_store(root) as store:
        assert store.read_only_reason is None
        assert 0 < count_readable(store) < COUNT


def test_whole_queue_files_below_the_log_refuse_the_opening(root: Path) -> None:
    for path in segments(root)[:2]:
        path.unlink()
    loss = refused(root, f"the log begins at offset {2 * SEGMENT}, and the first file of topic T")
    assert loss.segments == (f"{0:020d}", f"{SEGMENT:020d}")
    assert 0 < loss.messages < COUNT
    accept_loss.accept(root, CONFIG, FILES, CLOCK, loss.confirmation)
    goes_on_without(root, loss)


def test_a_broker_that_did_not_close_may_have_whole_queue_files_below_the_log(root: Path) -> None:
    (root / "abort").write_bytes(b"")
    for path in segments(root)[:2]:
        path.unlink()
    with open_store(root) as store:
        assert store.read_only_reason is None


def test_each_loss_is_named(root: Path) -> None:
    kept = segments(root)
    for path in (kept[1], used_segments(root)[-1]):
        path.unlink()
    text = str(refused(root, "between others, and queues name records up to offset").text)
    assert f"{SEGMENT:020d}" in text


@pytest.mark.parametrize("lose", WITHOUT_LOG)
def test_the_size_of_segments_is_required_where_no_file_shows_it(
    root: Path, lose: Callable[[Path], None]
) -> None:
    end = records_end(root)
    lose(root)
    unsized = CONFIG.model_validate(
        CONFIG.model_dump(exclude_unset=True, exclude={"mapped_file_size_commit_log"})
    )
    assert refused(root, "has no messages").segments == ()
    before = everything(root)
    with pytest.raises(LossNotAccepted, match="--segment-size BYTES"):
        accept_loss.plan(root, unsized, FILES, CLOCK)
    with pytest.raises(LossNotAccepted, match="--segment-size BYTES"):
        Patient(root, unsized).repair().run()
    assert everything(root) == before

    loss = accept_loss.plan(root, CONFIG, FILES, CLOCK).loss
    planned = accept_loss.accept(root, CONFIG, FILES, CLOCK, loss.confirmation)

    assert planned.resume_at is not None
    assert end <= planned.resume_at < end + SEGMENT
    with open_store(root, unsized) as store:  # the note has the size
        assert store.config.mapped_file_size_commit_log == SEGMENT
        assert put_message(store, message(store, 7)).physical_offset >= planned.resume_at
    made = [path for path in segments(root) if path.is_file()]
    assert {path.stat().st_size for path in made} == {SEGMENT}


def test_the_loss_of_a_log_in_another_directory_is_accepted_there(root: Path) -> None:
    log = root.parent / "log"
    (root / "commitlog").rename(log)
    sorted(log.iterdir())[1].unlink()
    with pytest.raises(DataMissing, match=f"accept-loss {root} --commit-log {log} --dry-run"):
        open_store(root, store_path_commit_log=str(log))
    loss = accept_loss.plan(root, CONFIG, FILES, CLOCK, commit_log=log).loss
    assert loss.missing_bytes == SEGMENT
    accept_loss.accept(root, CONFIG, FILES, CLOCK, loss.confirmation, commit_log=log)
    with open_store(root, store_path_commit_log=str(log)) as store:
        assert store.read_only_reason is None
        assert count_readable(store) == COUNT - loss.messages


def test_a_damaged_entry_is_no_lost_log(root: Path) -> None:
    path = root / "consumequeue" / "T" / "0" / f"{2 * CONFIG.queue_file_size:020d}"
    with path.open("r+b") as file:
        file.seek((COUNT // 3 - 1) % 100 * 20)
        file.write(struct.pack(">q", 1 << 50))
    with open_store(root) as store:
        assert bodies(store) == all_bodies(COUNT)
