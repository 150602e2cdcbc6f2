"""One topic-queue: places, blanks, bounds, searching and shortening."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqstore.storage.layout import RECORD_FIXED_SIZE
from mqstore.storage.mapped.mapped_file_queue import MappedFileQueue, StrayReason
from mqstore.storage.queues.consume_queue import ConsumeQueue
from mqstore.storage.queues.queue_entry import ENTRY, PRE_BLANK, Put, QueueEntry, is_ext_address
from mqstore.storage.queues.queue_holes import GAP_MAX
from mqstore.storage.system.threads import production_seams
from tests.long_runs import examples
from tests.unit.storage.small_store import BORN_MS, HOST, HOST_V6, SmallLog

FILE_SIZE = 200
"""Ten entries."""


def open_queue(root: Path, *, writable: bool = True, file_size: int = FILE_SIZE) -> ConsumeQueue:
    files = MappedFileQueue(
        root / "queue",
        file_size,
        production_seams(),
        staging=root / "staging",
        writable=writable,
        derived=True,
    )
    queue = ConsumeQueue("topic", 0, files, file_size)
    queue.load()
    return queue


def filled(root: Path, count: int, start: int = 0) -> ConsumeQueue:
    """Entry n names the record at n x 100."""
    queue = open_queue(root)
    for index in range(start, start + count):
        assert queue.put(index, index * 100, 100, index) is Put.APPENDED
    return queue


def test_an_entry_stands_at_twenty_times_its_index(tmp_path: Path) -> None:
    filled(tmp_path, 25).flush()

    content = b"".join(path.read_bytes() for path in sorted((tmp_path / "queue").iterdir()))

    assert content[:500] == b"".join(ENTRY.pack(n * 100, 100, n) for n in range(25))
    assert content[500:] == bytes(100)


def test_a_file_is_made_only_when_its_first_entry_comes(tmp_path: Path) -> None:
    queue = filled(tmp_path, 10)
    queue.aim_window(10)
    assert len(queue.files.files) == 1

    queue.put(10, 1000, 100, 0)

    assert len(queue.files.files) == 2


@pytest.mark.parametrize("truncates", [False, True])
def test_no_offset_is_given_out_twice_when_a_new_file_loses_its_entries(
    tmp_path: Path, truncates: bool
) -> None:
    """The files before it have expired, so no other file shows that there was an entry."""
    queue = filled(tmp_path, 23)
    assert queue.delete_before(2_000) == 2
    if truncates:
        assert queue.truncate_after(2_000) == 3
    else:
        queue.files.files[0].view[:] = bytes(FILE_SIZE)
    queue.flush()

    queue = open_queue(tmp_path)

    assert (queue.first_index, queue.max_index) == (20, 20)
    assert queue.put(20, 5_000, 100, 0) is Put.APPENDED
    assert queue.entry(20) == QueueEntry(5_000, 100, 0)


@pytest.mark.parametrize("count", [0, 1, 9, 10, 11, 25])
def test_a_reopened_queue_goes_on_where_it_ended(tmp_path: Path, count: int) -> None:
    filled(tmp_path, count).flush()

    queue = open_queue(tmp_path)

    assert (queue.min_index, queue.max_index) == (0, count)
    assert queue.put(count, 7, 9, -1) is Put.APPENDED
    assert queue.entry(count) == QueueEntry(7, 9, -1)


def test_a_queue_that_begins_late_is_blank_before_within_its_first_file(tmp_path: Path) -> None:
    queue = filled(tmp_path, 2, start=1_000_004)

    assert queue.first_index == 1_000_000
    assert (queue.min_index, queue.max_index) == (1_000_004, 1_000_006)
    file = next((tmp_path / "queue").iterdir())
    assert file.read_bytes()[:80] == PRE_BLANK * 4
    assert open_queue(tmp_path).min_index == 1_000_000


def test_a_hole_repeats_the_entry_before_until_it_is_filled(tmp_path: Path) -> None:
    queue = filled(tmp_path, 3)
    queue.put(12, 1200, 100, 0)
    assert [queue.is_filler(index) for index in range(13)] == [3 <= i < 12 for i in range(13)]
    assert {queue.entry(index) for index in range(2, 12)} == {queue.entry(2)}

    assert queue.put(7, 700, 100, 0) is Put.FILLED
    queue.due_fillers.settle()

    found = [entry.physical_offset for _, entry in queue.entries(0, 13)]
    assert found == [0, 100, 200, 200, 200, 200, 200, 700, 700, 700, 700, 700, 1200]
    assert [queue.is_filler(index) for index in (6, 7, 8, 11, 12)] == [
        True,
        False,
        True,
        True,
        False,
    ]
    assert queue.put(8, 800, 100, 0) is Put.FILLED
    assert queue.put(7, 777, 100, 0) is Put.DIFFERENT


@pytest.mark.parametrize("count", [100, 1_000])
def test_records_for_a_hole_cost_a_write_each(tmp_path: Path, count: int) -> None:
    """Each wrote all fillers behind it, so that they cost the square of their number."""
    queue = open_queue(tmp_path, file_size=20 * count * 2)
    queue.put(0, 0, 100, 0)
    queue.put(count, count * 100, 100, 0)
    written: list[int] = []
    queue.due_fillers._overwrite = lambda index, _: written.append(index)
    overwrite = queue._overwrite

    def count_write(index: int, entry: QueueEntry) -> None:
        written.append(index)
        overwrite(index, entry)

    queue._overwrite = count_write  # type: ignore[method-assign]
    for index in range(1, count):
        assert queue.put(index, index * 100, 100, 0) is Put.FILLED
    queue.due_fillers.settle()

    assert written == [*range(1, count)]
    assert [entry[0] for _, entry in queue.entries(0, count)] == [*range(0, count * 100, 100)]


@given(st.lists(st.integers(1, 29), unique=True), st.integers(0, 40))
def test_a_hole_is_filled_in_any_order_and_across_a_kill(found: list[int], killed: int) -> None:
    with tempfile.TemporaryDirectory() as root:
        queue = open_queue(Path(root), file_size=1_000)
        queue.put(0, 0, 100, 0)
        queue.put(30, 3_000, 100, 0)
        for index in found[:killed]:
            assert queue.put(index, index * 100, 100, 0) is Put.FILLED
        queue = open_queue(Path(root), file_size=1_000)  # which reads the log again
        for index in sorted(found):
            assert queue.put(index, index * 100, 100, 0) in (Put.FILLED, Put.PRESENT)
        queue.due_fillers.settle()

        due, last = [], 0
        for index in range(30):
            last = index if index in found else last
            due.append(last * 100)
        assert [entry.physical_offset for _, entry in queue.entries(0, 30)] == due


def test_no_filler_is_left_as_the_last_entry(tmp_path: Path) -> None:
    queue = filled(tmp_path, 3)
    queue.put(8, 800, 100, 0)

    assert queue.truncate_after(800) == 6

    assert queue.max_index == 3


def test_a_filler_behind_others_that_were_lost_is_no_last_entry_either(tmp_path: Path) -> None:
    """A power cut may take some fillers of a hole: what is left of it is still a hole."""
    queue = filled(tmp_path, 3)
    queue.put(8, 800, 100, 0)
    for lost in (3, 4):
        queue._overwrite(lost, QueueEntry(0, 0, 0))

    queue.truncate_after(800)

    assert queue.max_index == 3


def test_entries_lost_from_the_middle_are_filled_when_the_log_has_nothing_for_them(
    tmp_path: Path,
) -> None:
    queue = filled(tmp_path, 25)
    for index in (4, 9, 10, 11):
        queue._overwrite(index, QueueEntry(0, 0, 0))
    queue._overwrite(20, QueueEntry(*ENTRY.unpack(PRE_BLANK)))

    assert queue.fill_holes() == 5
    assert queue.fill_holes() == 0

    found = {i: entry.physical_offset for i, entry in queue.entries(0, 25)}
    holes = {4: 300, 9: 800, 10: 800, 11: 800, 20: 1900}
    assert found == {i: i * 100 for i in range(25)} | holes


@pytest.mark.parametrize("kept", ["first", "second"])
@pytest.mark.parametrize("blank", [bytes(20), PRE_BLANK])
@pytest.mark.parametrize("index", [25, 51, 76, 102])
def test_a_filler_that_lost_one_of_its_two_sectors_is_filled_again(
    tmp_path: Path, index: int, blank: bytes, kept: str
) -> None:
    """A power cut between the two, in a hole: without a size a broker would end the queue there."""
    queue = open_queue(tmp_path, file_size=20 * 200)
    assert queue.put(0, 1 << 40, 100, -7) is Put.APPENDED
    assert queue.put(1, (1 << 40) + 100, 100, -7) is Put.APPENDED
    assert queue.put(120, (1 << 40) + 900, 100, 5) is Put.APPENDED
    expected = dict(queue.entries(0, 121))
    filler, split = ENTRY.pack(*expected[1]), -index * 20 % 512
    torn = {
        "first": filler[:split] + blank[split:],
        "second": blank[:split] + filler[split:],
    }
    queue._overwrite(index, QueueEntry(*ENTRY.unpack(torn[kept])))

    queue.fill_holes()

    named = {i: entry[:2] for i, entry in queue.entries(0, 121)}
    assert named == {i: entry[:2] for i, entry in expected.items()}


AGED = 20_000
"""Entries before the first one of an aged queue; the middle of its file."""


@pytest.mark.parametrize("behind_a_record", [False, True])
def test_filling_holes_reads_each_entry_a_bounded_number_of_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, behind_a_record: bool
) -> None:
    """A backup of an aged store begins its queues with pre-blank entries, one of 25 in two
    sectors."""
    queue = open_queue(tmp_path, file_size=20 * 2 * AGED)
    if behind_a_record:
        assert queue.put(0, 0, 100, 0) is Put.APPENDED
    assert queue.put(AGED, 1 << 40, 100, 0) is Put.APPENDED
    assert queue.put(AGED + 1, (1 << 40) + 100, 100, 0) is Put.APPENDED
    blank = QueueEntry(*ENTRY.unpack(PRE_BLANK))
    for index in range(1 if behind_a_record else AGED, AGED):
        queue._overwrite(index, blank)
    reads, read = 0, ConsumeQueue._read

    def counted(self: ConsumeQueue, index: int) -> QueueEntry | None:
        nonlocal reads
        reads += 1
        return read(self, index)

    monkeypatch.setattr(ConsumeQueue, "_read", counted)

    filled = queue.fill_holes()

    assert filled == (AGED - 1 if behind_a_record else 0)
    assert reads <= 4 * AGED if behind_a_record else reads <= 100


def test_a_filler_over_half_an_entry_that_loses_a_sector_in_its_turn_is_filled_again(
    tmp_path: Path,
) -> None:
    """Its offset and the size of what stood there: the wrong bytes of another message."""
    queue = open_queue(tmp_path, file_size=20 * 200)
    queue.put(0, 0, 100, 0)
    queue.put(1, 100, 100, 0)
    queue.put(120, 900, 100, 5)
    queue._overwrite(101, QueueEntry(0, 0, 0))
    queue._overwrite(102, QueueEntry(100, 555, 3))

    assert queue.fill_holes() == 2

    assert queue.entry(102) == QueueEntry(100, 100, 0)


@pytest.mark.parametrize("base", [0, 5 << 32])
@pytest.mark.parametrize("lost_before", [0, 3])
@pytest.mark.parametrize("index", [51, 102])
def test_a_last_entry_that_lost_its_offset_ends_no_queue(
    tmp_path: Path, index: int, lost_before: int, base: int
) -> None:
    """Its record was lost with it; the wrong offset is below the log's end, though."""
    queue = open_queue(tmp_path, file_size=20 * 200)
    for each in range(index + 1):
        queue.put(each, base + 100 + each, 100, 3)
    split = -index * 20 % 512
    torn = bytes(split) + ENTRY.pack(base + 100 + index, 100, 3)[split:]
    queue._overwrite(index, QueueEntry(*ENTRY.unpack(torn)))
    for lost in range(index - lost_before, index):
        queue._overwrite(lost, QueueEntry(0, 0, 0))

    queue.truncate_after(base + 99 + index)

    assert queue.max_index == index - max(1, lost_before)


@pytest.mark.parametrize("size", [0, -1, -(2**31)])
def test_an_entry_without_a_size_is_missing_wherever_it_stands(tmp_path: Path, size: int) -> None:
    """The disk may be given an entry of which the processor had stored the offset only."""
    queue = filled(tmp_path, 25)
    queue._overwrite(13, QueueEntry(1300, size, 0))

    assert queue.fill_holes() == 1

    assert queue.entry(13) == queue.entry(12)


def test_blanks_before_the_first_entry_stay(tmp_path: Path) -> None:
    queue = filled(tmp_path, 3, start=5)

    assert queue.fill_holes() == 0


def test_an_entry_that_is_there_is_never_overwritten(tmp_path: Path) -> None:
    queue = filled(tmp_path, 3)

    assert queue.put(1, 100, 100, 1) is Put.PRESENT
    assert queue.put(1, 100, 100, -(2**63)) is Put.PRESENT
    assert queue.put(1, 555, 100, 1) is Put.DIFFERENT
    assert queue.entry(1) == QueueEntry(100, 100, 1)


@pytest.mark.parametrize("index", [-1, 3 + GAP_MAX + 1, 2**59, 2**63 - 1])
def test_an_offset_that_cannot_be_is_refused(tmp_path: Path, index: int) -> None:
    queue = filled(tmp_path, 3)

    assert queue.put(index, 0, 1, 0) is Put.REFUSED
    assert queue.max_index == 3


@pytest.mark.parametrize("room", [0, 1])
def test_a_hole_is_as_large_as_the_log_has_room_for(tmp_path: Path, room: int) -> None:
    """A lost segment of many small records leaves one; a flipped bit of a queue offset does not."""
    queue = filled(tmp_path, 3)
    missing = GAP_MAX + 500
    lost = 300 + (missing - 1 + room) * RECORD_FIXED_SIZE

    put = queue.put(3 + missing, lost, 100, 0)

    assert put is (Put.APPENDED if room else Put.REFUSED)


def test_an_empty_queue_refuses_what_no_file_can_hold(tmp_path: Path) -> None:
    queue = open_queue(tmp_path)

    assert queue.put(2**63 // 20, 0, 1, 0) is Put.REFUSED
    assert queue.files.files == ()


@pytest.mark.parametrize("later", [1, 2, 9])
def test_a_queue_whose_first_files_were_lost_before_an_empty_one_begins_at_its_first_record(
    tmp_path: Path, later: int
) -> None:
    """A power cut took the entries of the later file, too, and not its name."""
    (tmp_path / "queue").mkdir()
    (tmp_path / "queue" / f"{later * FILE_SIZE:020d}").write_bytes(bytes(FILE_SIZE))
    queue = open_queue(tmp_path)
    assert (queue.first_index, queue.max_index) == (later * 10, later * 10)

    for index in range(3, 25):
        assert queue.put(index, index * 100, 100, index) is Put.APPENDED

    assert (queue.first_index, queue.min_index, queue.max_index) == (0, 3, 25)
    queue.flush()
    again = open_queue(tmp_path)
    found = [entry for _, entry in again.entries(3, 25)]
    assert found == [QueueEntry(n * 100, 100, n) for n in range(3, 25)]


@pytest.mark.parametrize("index", [1_000_000, 1_000_002, 1_000_009])
def test_a_damaged_queue_offset_does_not_end_a_queue_that_begins_at_an_empty_file(
    tmp_path: Path, index: int
) -> None:
    """The files before have expired: the second record is right, and the first one is not."""
    (tmp_path / "queue").mkdir()
    (tmp_path / "queue" / f"{1_000_000 * 20:020d}").write_bytes(bytes(FILE_SIZE))
    queue = open_queue(tmp_path)
    queue.put(7, 100, 100, 0)

    assert queue.put(index, 200, 100, 0) is Put.APPENDED

    assert (queue.first_index, queue.max_index) == (1_000_000, index + 1)
    assert queue.put(index + 1, 300, 100, 0) is Put.APPENDED
    assert queue.put(8, 400, 100, 0) is Put.REFUSED


@pytest.mark.parametrize(
    ("min_physical", "expected"), [(0, 0), (1, 1), (900, 9), (901, 10), (2400, 24), (2401, 25)]
)
def test_min_index_is_the_first_entry_at_or_above_the_logs_minimum(
    tmp_path: Path, min_physical: int, expected: int
) -> None:
    queue = filled(tmp_path, 25)

    queue.correct_min(min_physical)

    assert queue.min_index == expected


def test_min_index_passes_blanks_over(tmp_path: Path) -> None:
    queue = filled(tmp_path, 4, start=5)
    queue.put(12, 1200, 100, 0)

    queue.correct_min(300)
    assert queue.min_index == 5
    queue.correct_min(850)
    assert queue.min_index == 12
    queue.correct_min(0)
    assert queue.min_index == 0


def test_a_queue_without_its_first_entries_is_as_one_that_began_later(tmp_path: Path) -> None:
    queue = filled(tmp_path / "whole", 25)
    queue.remove_before(13)
    assert (queue.first_index, queue.min_index, queue.max_index) == (10, 13, 25)
    queue.flush()
    filled(tmp_path / "later", 12, start=13).flush()
    whole, later = (
        [(path.name, path.read_bytes()) for path in sorted((tmp_path / name / "queue").iterdir())]
        for name in ("whole", "later")
    )
    assert whole == later


def test_expiry_unlinks_whole_files_and_never_the_last(tmp_path: Path) -> None:
    queue = filled(tmp_path, 25)

    assert queue.delete_before(900) == 0
    assert queue.delete_before(901) == 1
    assert (queue.first_index, queue.min_index) == (10, 10)
    assert queue.delete_before(10**9) == 1
    assert (queue.first_index, queue.min_index, queue.max_index) == (20, 25, 25)
    assert queue.entry(5) is None


@pytest.mark.parametrize("end", [0, 100, 850, 1000, 1001, 2000, 2400, 9999])
def test_truncation_drops_exactly_what_it_offered_to_save(tmp_path: Path, end: int) -> None:
    queue = filled(tmp_path, 25)
    queue.flush()
    keep = min(25, -(-end // 100))

    tail = queue.tail_after(end)
    saved = b"".join(
        part.path.read_bytes()[part.offset : part.offset + part.length] for part in tail
    )
    dropped = queue.truncate_after(end)
    queue.flush()

    assert dropped == 25 - keep
    assert saved == b"".join(ENTRY.pack(n * 100, 100, n) for n in range(keep, 25))
    assert open_queue(tmp_path).max_index == keep
    files = sorted((tmp_path / "queue").iterdir())
    assert all(path.stat().st_size == FILE_SIZE for path in files)
    assert len(files) == -(-keep // 10)
    assert queue.put(keep, 9, 9, 9) is Put.APPENDED


def test_blanks_go_with_the_last_entry_behind_them(tmp_path: Path) -> None:
    queue = filled(tmp_path, 1, start=4)

    assert queue.truncate_after(400) == 5

    assert queue.max_index == 0
    assert queue.put(4, 400, 100, 0) is Put.APPENDED
    assert next((tmp_path / "queue").iterdir()).read_bytes()[:80] == PRE_BLANK * 4


def test_a_destroyed_queue_begins_at_zero_again(tmp_path: Path) -> None:
    queue = filled(tmp_path, 25)

    queue.destroy()

    assert list((tmp_path / "queue").iterdir()) == []
    assert queue.max_index == 0
    assert queue.put(0, 0, 1, 0) is Put.APPENDED


def test_stray_files_are_reported_and_left_alone(tmp_path: Path) -> None:
    filled(tmp_path, 12).flush()
    (tmp_path / "queue" / "notes.txt").write_text("mine")
    (tmp_path / "queue" / f"{400:020d}").write_bytes(b"short")

    queue = open_queue(tmp_path)

    files = MappedFileQueue(
        tmp_path / "queue", FILE_SIZE, production_seams(), staging=tmp_path / "staging"
    )
    assert [stray.reason for stray in files.load()] == [StrayReason.LENGTH, StrayReason.NAME]
    assert queue.max_index == 12
    assert (tmp_path / "queue" / "notes.txt").read_text() == "mine"


def test_ext_addresses_are_distinguished_from_tags_codes() -> None:
    assert is_ext_address(-(2**63))
    assert is_ext_address(-(2**31) - 1)
    assert not is_ext_address(-(2**31))
    assert QueueEntry(0, 1, -(2**63) + 34).is_ext_address


@settings(max_examples=examples(60), deadline=None)
@given(data=st.data())
def test_search_by_time_finds_the_first_at_or_after(data: st.DataObject) -> None:
    log = SmallLog()
    times = sorted(data.draw(st.lists(st.integers(0, 30), max_size=40)))
    with tempfile.TemporaryDirectory() as directory:
        queue = open_queue(Path(directory))
        indexes: list[tuple[int, int]] = []
        index = 0
        for time in times:
            index += data.draw(st.sampled_from([0, 0, 0, 1, 12]))
            host = data.draw(st.sampled_from([HOST, HOST_V6]))
            offset = log.put(store_ms=BORN_MS + time, born_host=host)
            queue.put(index, offset, 100, 0)
            indexes.append((index, time))
            index += 1
        for wanted in range(-1, 32):
            expected = next((at for at, time in indexes if time >= wanted), queue.max_index)
            assert queue.find_by_time(BORN_MS + wanted, log) == expected


def test_search_by_time_passes_entries_without_a_record_over(tmp_path: Path) -> None:
    log = SmallLog()
    queue = open_queue(tmp_path)
    offset = log.put(store_ms=BORN_MS)
    queue.put(0, 10**9, 100, 0)
    queue.put(1, offset, 100, 0)

    assert queue.find_by_time(BORN_MS - 5, log) == 1
    assert queue.find_by_time(BORN_MS + 5, log) == 2


def test_a_tombstone_without_a_time_misleads_no_search(tmp_path: Path) -> None:
    log = SmallLog()
    queue = open_queue(tmp_path)
    for index, time in enumerate([BORN_MS, 0, 0, 0, BORN_MS + 1]):
        queue.put(index, log.put(store_ms=time), 100, 0)

    assert queue.find_by_time(BORN_MS, log) == 0
    assert queue.find_by_time(BORN_MS + 1, log) == 4


def test_a_file_with_an_absurd_name_makes_no_endless_walk(tmp_path: Path) -> None:
    filled(tmp_path, 12).flush()
    source = tmp_path / "queue" / f"{200:020d}"
    far = 2**62 - 2**62 % FILE_SIZE
    (tmp_path / "queue" / f"{far:020d}").write_bytes(source.read_bytes())
    log = SmallLog()

    queue = open_queue(tmp_path)

    assert queue.max_index == far // 20 + 2
    queue.correct_min(10**9)
    assert queue.find_by_time(BORN_MS, log) == queue.max_index
    assert queue.max_physical_end() == 1_200
    assert queue.truncate_after(1_000) == far // 20 - 8
    assert queue.max_index == 10
