from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqstore.storage.layout import SysFlag
from mqstore.storage.recovery import plan
from mqstore.storage.recovery.report import (
    CutTail,
    ExtendSegment,
    RecoveryPlan,
    RemoveSegment,
    SetQueuesAside,
    StartReason,
)
from mqstore.storage.recovery.view import CheckpointTimes
from tests.long_runs import examples
from tests.unit.storage.recovery.log_builder import (
    SEGMENT,
    START_MS,
    LogBuilder,
    message,
    view_of,
)

BODY_AT = 88
"""Position of the body in a V1 record with IPv4 hosts."""


def planned(log: LogBuilder, root: Path, **view: object) -> RecoveryPlan:
    return plan(view_of(log.write(root), **view))  # type: ignore[arg-type] # passed through


def cuts(found: RecoveryPlan) -> list[CutTail]:
    return [action for action in found.actions if isinstance(action, CutTail)]


def test_a_whole_log_ends_behind_its_last_record(tmp_path: Path) -> None:
    log = LogBuilder().fill(40)
    found = planned(log, tmp_path)
    assert (found.max_offset, found.records, found.cut_bytes) == (log.end, 40, 0)
    assert found.damaged_count == 0
    assert found.last_store_timestamp_ms == START_MS + 39 * log.step_ms


def test_an_empty_directory_is_a_new_store(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    found = planned(LogBuilder(segments=[]), tmp_path)
    assert (found.start_reason, found.max_offset, found.actions) == (StartReason.NEW_STORE, 0, ())


def test_a_plan_is_the_same_after_a_round_trip_through_json(tmp_path: Path) -> None:
    log = LogBuilder().fill(40)
    log.poke(log.end, b"garbage")
    found = planned(log, tmp_path)
    assert RecoveryPlan.model_validate_json(found.model_dump_json(by_alias=True)) == found


def test_a_segment_made_ahead_of_need_is_removed_without_quarantine(tmp_path: Path) -> None:
    log = LogBuilder().fill(5)
    log.segments.append(bytearray(SEGMENT))
    found = plan(view_of(log.write(tmp_path)))
    removed = [a for a in found.actions if isinstance(a, RemoveSegment)]
    assert [(a.offset, a.length) for a in removed] == [(SEGMENT, 0)]
    assert found.cut_bytes == 0


def test_a_blank_record_leads_to_the_empty_next_segment(tmp_path: Path) -> None:
    log = LogBuilder().fill(15)
    while len(log.segments) < 2:
        log.fill(1)
    offset, size = log.records[-1]
    log.poke(offset, bytes(size))
    found = planned(log, tmp_path)
    assert found.max_offset == SEGMENT == offset


@settings(max_examples=examples(60), deadline=None)
@given(data=st.data())
def test_a_tail_torn_at_any_byte_is_cut_at_its_record(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    log = LogBuilder().fill(data.draw(st.integers(3, 60)))
    offset, size = log.records[-1]
    kept = data.draw(st.integers(1, size - 1))
    original = bytes(log.segments[-1])
    log.poke(offset + kept, bytes(size - kept))
    if bytes(log.segments[-1]) == original:
        return
    found = planned(log, tmp_path_factory.mktemp("store"))
    assert found.max_offset == offset
    assert found.damaged_count == 0
    left = any(original[offset % SEGMENT : offset % SEGMENT + kept])
    assert [cut.offset for cut in cuts(found)] == [offset] * left


@pytest.mark.parametrize("where", ["size", "magic", "body", "physical offset"])
def test_one_rotten_record_in_the_middle_costs_nothing_behind_it(
    tmp_path: Path, where: str
) -> None:
    log = LogBuilder().fill(40)
    at = {"size": 1, "magic": 4, "body": BODY_AT + 3, "physical offset": 31}[where]
    offset, size = log.records[20]
    log.flip(offset + at)
    found = planned(log, tmp_path)
    assert (found.max_offset, found.records, found.cut_bytes) == (log.end, 39, 0)
    assert [(d.offset, d.length) for d in found.damaged] == [(offset, size)]


def test_neighbouring_rotten_bodies_are_named_one_by_one(tmp_path: Path) -> None:
    log = LogBuilder().fill(40)
    for number in (20, 21, 22):
        log.flip(log.records[number][0] + BODY_AT)
    found = planned(log, tmp_path)
    assert [d.offset for d in found.damaged] == [log.records[n][0] for n in (20, 21, 22)]
    assert found.max_offset == log.end


def test_a_rotten_body_at_the_end_is_cut(tmp_path: Path) -> None:
    log = LogBuilder().fill(10)
    offset, _ = log.records[-1]
    log.flip(offset + BODY_AT)
    found = planned(log, tmp_path)
    assert found.max_offset == offset
    assert "body crc" in cuts(found)[0].reason


def test_a_page_lost_in_the_middle_keeps_what_is_behind(tmp_path: Path) -> None:
    log = LogBuilder().fill(60)
    log.poke(SEGMENT + 512, bytes(512))
    found = planned(log, tmp_path)
    assert found.max_offset == log.end
    assert found.damaged_count >= 1
    assert found.records + 6 >= 60 - 6


def test_garbage_behind_the_end_is_cut_and_costs_no_message(tmp_path: Path) -> None:
    log = LogBuilder().fill(10)
    end = log.end
    log.poke(end + 100, b"\x07" * 300)
    found = planned(log, tmp_path)
    assert (found.max_offset, found.records) == (end, 10)
    assert [(cut.offset, cut.length) for cut in cuts(found)] == [(end, 400)]


def test_records_left_over_from_an_earlier_cut_do_not_come_back(tmp_path: Path) -> None:
    log = LogBuilder()
    for _ in range(6):
        log.put(message("A"))
    # A broker cut behind the third and wrote on in another queue; old records follow by chance.
    log.position = log.records[3][0]
    log.next_offsets["A", 0] = 3
    log.put(message("A"), queue_offset=3)
    log.put(message("A"), queue_offset=4)
    end = log.end
    stale = LogBuilder(position=end)
    stale.put(message("A"), queue_offset=2)
    log.poke(end, bytes(stale.segments[0][end : stale.position]))
    found = planned(log, tmp_path)
    assert found.max_offset == end
    assert "left over" in cuts(found)[0].reason


def test_repeated_queue_offsets_with_newer_records_behind_stay(tmp_path: Path) -> None:
    log = LogBuilder()
    for _ in range(5):
        log.put(message("A"))
    for queue_offset in (1, 2, 3, 4, 5):
        log.put(message("A"), queue_offset=queue_offset)
    found = planned(log, tmp_path)
    assert (found.max_offset, found.records) == (log.end, 10)
    assert found.repeated_queue_offsets == 4


def test_prepared_records_count_by_the_newer_one_that_follows(tmp_path: Path) -> None:
    log = LogBuilder().fill(10)
    offset = log.end
    log.poke(offset, b"\xff" * 16)
    log.position += 16
    log.put(message(sys_flag=int(SysFlag.TRANSACTION_PREPARED)), queue_offset=0)
    alone = planned(log, tmp_path / "alone")
    log.put(message("B"))
    followed = planned(log, tmp_path / "followed")
    assert alone.max_offset == offset
    assert followed.max_offset == log.end


def test_a_forged_record_in_a_torn_body_does_not_keep_the_tail(tmp_path: Path) -> None:
    log = LogBuilder().fill(5)
    forged_at = log.end + BODY_AT
    forged = LogBuilder(position=forged_at)
    forged.put(message("T", 0), queue_offset=0)
    body = bytes(forged.segments[0][forged_at : forged.position]) + b"x" * 200
    offset = log.put(message(body=body))
    log.poke(log.end - 20, bytes(20))
    found = planned(log, tmp_path)
    assert found.max_offset == offset


@pytest.mark.parametrize("seconds, first", [(0, 0), (500, 1), (10_000, 3)])
def test_without_a_watermark_recovery_starts_where_rocketmq_does(
    tmp_path: Path, seconds: int, first: int
) -> None:
    log = LogBuilder().fill(60)
    times = CheckpointTimes(START_MS + seconds * 1000, START_MS + seconds * 1000 + 1, 0)
    if seconds == 0:
        times = CheckpointTimes()
    found = planned(log, tmp_path, checkpoint=times)
    starts = {0: StartReason.FIRST_SEGMENT}
    assert found.start_reason is starts.get(seconds, StartReason.CHECKPOINT)
    last = (len(log.segments) - 1) * SEGMENT
    assert found.start <= last
    if seconds == 10_000:
        assert found.start == last
    if seconds == 0:
        assert found.start == 0
    assert found.max_offset == log.end
    assert first * SEGMENT <= found.start or seconds == 500


def test_a_clean_close_of_a_broker_is_checked_over_three_segments(tmp_path: Path) -> None:
    log = LogBuilder().fill(100)
    found = planned(log, tmp_path, abort=False)
    assert found.start_reason is StartReason.LAST_THREE
    assert found.start == (len(log.segments) - 3) * SEGMENT
    assert found.path == "normal"


def test_nothing_below_the_watermark_is_looked_at(tmp_path: Path) -> None:
    log = LogBuilder().fill(40)
    watermark = log.records[30][0]
    log.flip(log.records[10][0] + BODY_AT)
    found = planned(log, tmp_path, watermark=watermark)
    assert (found.start, found.start_reason) == (watermark, StartReason.WATERMARK)
    assert (found.records, found.damaged_count) == (10, 0)


def test_a_watermark_that_the_log_does_not_reach_is_not_believed(tmp_path: Path) -> None:
    log = LogBuilder().fill(40)
    found = planned(log, tmp_path, watermark=log.end + 500)
    assert found.start_reason is StartReason.FIRST_SEGMENT
    assert found.max_offset == log.end


def test_a_short_last_segment_keeps_its_whole_records(tmp_path: Path) -> None:
    log = LogBuilder().fill(40)
    paths = log.write(tmp_path)
    offset, _ = log.records[-1]
    last = sorted(paths.commit_log.iterdir())[-1]
    last.write_bytes(last.read_bytes()[: offset % SEGMENT + 50])
    found = plan(view_of(paths))
    assert found.max_offset == offset
    assert [type(action) for action in found.actions][:2] == [ExtendSegment, CutTail]
    assert found.read_only is None


def test_a_wrong_length_inside_the_log_opens_read_only(tmp_path: Path) -> None:
    log = LogBuilder().fill(100)
    paths = log.write(tmp_path)
    middle = sorted(paths.commit_log.iterdir())[1]
    middle.write_bytes(middle.read_bytes()[:1000])
    found = plan(view_of(paths))
    assert found.read_only is not None
    assert middle.name in found.read_only
    assert (found.actions, found.max_offset) == ((), log.end)


def test_stray_files_are_reported_and_left_alone(tmp_path: Path) -> None:
    log = LogBuilder().fill(5)
    paths = log.write(tmp_path)
    (paths.commit_log / "notes.txt").write_text("mine")
    found = plan(view_of(paths))
    assert found.strays == (str(paths.commit_log / "notes.txt"),)
    assert found.max_offset == log.end


def test_queues_without_any_log_are_set_aside(tmp_path: Path) -> None:
    paths = LogBuilder(segments=[]).write(tmp_path)
    (paths.consume_queue / "T" / "0").mkdir(parents=True)
    found = plan(view_of(paths))
    assert [type(action) for action in found.actions] == [SetQueuesAside]


def test_progress_ends_at_all_of_the_bytes(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    log = LogBuilder().fill(60)
    plan(view_of(log.write(tmp_path)), lambda done, total: seen.append((done, total)))
    assert seen[-1] == (len(log.segments) * SEGMENT,) * 2
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
