"""The commit log under any messages, any order of operations, and power cuts."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from mqstore.storage.codec import properties
from mqstore.storage.codec.record import Blank, Message, Record, scan
from mqstore.storage.errors import PutRefused
from mqstore.storage.layout import StoreFormat
from mqstore.storage.log.commit_log import CommitLog, Placement
from mqstore.storage.mapped.allocation import AllocationService
from mqstore.storage.mapped.mapped_file_queue import MappedFileQueue
from tests.long_runs import examples
from tests.simulation import Loss, SimulatedDisk, SimulatedMachine
from tests.unit.storage.commit_logs import (
    COMMIT,
    CONFIG,
    PREPARED,
    ROLLBACK,
    SEGMENT,
    V4,
    V4_HOST,
    V5,
    V6_HOST,
    Opened,
    message,
    open_log,
)
from tests.unit.storage.gated_files import Marks

HOSTS = st.sampled_from([V4_HOST, V6_HOST])
PROPERTIES = st.dictionaries(
    st.text("abcKEYS", min_size=1, max_size=6),
    st.text("xyzé ", min_size=1, max_size=20),
    max_size=3,
)
MESSAGES = st.builds(
    lambda topic, queue, body, props, born, store, flag, transaction: Message(
        topic,
        queue,
        body,
        properties.encode(props, trailing_separator=False),
        born,
        store,
        1_700_000_000_000,
        flag=flag,
        sys_flag=transaction,
    ),
    st.sampled_from(["topic", "%RETRY%group-a", "ä", "t" * 127, "t" * 128]),
    st.integers(0, 3),
    st.one_of(st.none(), st.binary(max_size=50), st.integers(0, SEGMENT).map(bytes)),
    PROPERTIES,
    HOSTS,
    HOSTS,
    st.integers(-(2**31), 2**31 - 1),
    st.sampled_from([0, 0, 0, PREPARED, COMMIT, ROLLBACK]),
)
PUTS = st.lists(st.one_of(MESSAGES, st.lists(MESSAGES, min_size=1, max_size=4)), max_size=30)


@settings(max_examples=examples(150))
@given(PUTS, st.sampled_from([V4, V5]))
def test_whatever_is_placed_is_scanned_back(
    puts: list[Message | list[Message]], store_format: StoreFormat
) -> None:
    with TemporaryDirectory() as root:
        opened = open_log(Path(root), store_format)
        placed: list[tuple[Message, Placement]] = []
        for put in puts:
            run = put if isinstance(put, list) else [put]
            before = opened.log.max_offset
            try:
                placements = (
                    opened.log.put(opened.log.encode(run))
                    if isinstance(put, list)
                    else [opened.log.append(put)]
                )
            except PutRefused:
                assert opened.log.max_offset == before
                continue
            placed.extend(zip(run, placements, strict=True))
        found = opened.scanned()
        records = [each for each in found if isinstance(each, Record)]
        assert all(isinstance(each, Record | Blank) for each in found)
        assert [_seen(record) for record in records] == [_put(*each) for each in placed]
        _check_numbers(records)
        _check_blanks(opened)
        opened.files.close()


def _put(put: Message, placement: Placement) -> tuple[object, ...]:
    v6 = (put.born_host.is_v6 and 0x10) | (put.store_host.is_v6 and 0x20)
    return (
        *(placement.physical_offset, placement.size, placement.queue_offset),
        *(put.topic, put.queue_id, put.body or b"", put.properties, put.flag),
        *(put.sys_flag | v6, put.born_host, put.store_host, placement.store_timestamp_ms),
    )


def _seen(record: Record) -> tuple[object, ...]:
    return (
        *(record.physical_offset, record.size, record.queue_offset),
        *(record.topic, record.queue_id, record.body, record.raw_properties, record.flag),
        *(record.sys_flag, record.born_host, record.store_host, record.store_timestamp_ms),
    )


def _check_numbers(records: list[Record]) -> None:
    """Each queue is numbered 0, 1, 2… in log order; what is out of the queues has 0."""
    numbers: dict[tuple[str, int], list[int]] = {}
    for record in records:
        if record.sys_flag & 0xC in (0, COMMIT):
            numbers.setdefault((record.topic, record.queue_id), []).append(record.queue_offset)
        else:
            assert record.queue_offset == 0
    assert all(found == list(range(len(found))) for found in numbers.values())


def _check_blanks(opened: Opened) -> None:
    """Every segment but the last is closed by one blank record, or was left with just room."""
    for file, content in zip(opened.files.files[:-1], opened.bytes(), strict=False):
        *_, last = scan(file.view, 0, file.size, file.base_offset)
        assert isinstance(last, Blank)
        assert last.offset + last.size == file.base_offset + file.size
        position = last.offset - file.base_offset
        assert content[position + 8 :] == bytes(file.size - position - 8)


# what a power cut leaves

ROOT = Path("/store")
OPERATIONS = st.lists(
    st.tuples(st.sampled_from(["put", "put", "put", "wait", "pass"]), st.integers(1, 1500)),
    min_size=1,
    max_size=40,
)


class SimulatedLog:
    """A commit log with its services on a simulated machine."""

    def __init__(self, machine: SimulatedMachine) -> None:
        self.machine = machine
        self.marks = Marks()
        seams = machine.seams
        files = MappedFileQueue(ROOT / "commitlog", SEGMENT, seams, staging=ROOT / "staging")
        allocation = AllocationService(seams)
        self.log = CommitLog(files, CONFIG, V4, seams, self.marks, allocation=allocation)
        allocation.start(self._failed)
        self.log.flush.start()
        self.bodies: list[bytes] = []

    def run(self, operation: str, size: int) -> None:
        if operation == "put":
            body = bytes([len(self.bodies) % 256]) * size
            self.log.append(message(body))
            self.bodies.append(body)
        elif operation == "wait":
            request = self.log.flush.request(self.log.max_offset)
            self.log.flush.wait(request)
            assert self.log.flushed_offset == self.log.max_offset
        else:
            self.machine.scheduler.run_for(size / 1000)

    @property
    def watermark(self) -> int:
        return self.marks.flushed[-1] if self.marks.flushed else 0

    def _failed(self, error: BaseException) -> None:
        raise AssertionError("a service failed") from error


def survivors(disk: SimulatedDisk, below: int) -> list[Record]:
    """The records that stand on a disk below an offset; everything there must be whole."""
    found: list[Record] = []
    for base in range(0, below, SEGMENT):
        view = disk.map(ROOT / "commitlog" / f"{base:020d}", writable=False).view
        for each in scan(view, 0, min(SEGMENT, below - base), base):
            assert isinstance(each, Record | Blank), each
            if isinstance(each, Record):
                found.append(each)
    return found


@settings(max_examples=examples(100))
@given(OPERATIONS, st.integers(0, 2**32), st.sampled_from(Loss))
def test_whatever_is_below_the_watermark_survives_a_power_cut(
    operations: list[tuple[str, int]], seed: int, loss: Loss
) -> None:
    machine = SimulatedMachine(seed)
    simulated = SimulatedLog(machine)
    for operation in operations:
        simulated.run(*operation)
    disk = machine.disk.power_cut(seed, loss)
    records = survivors(disk, simulated.watermark)
    assert [record.body for record in records] == simulated.bodies[: len(records)]
    assert sum(record.size for record in records) <= simulated.watermark
    assert machine.disk.holes_written == []


def test_a_callback_comes_under_the_simulated_scheduler_too() -> None:
    machine = SimulatedMachine(1)
    simulated = SimulatedLog(machine)
    simulated.run("put", 10)
    seen: list[int] = []
    request = simulated.log.flush.request(simulated.log.max_offset)
    request.add_done_callback(lambda done: seen.append(done.offset))
    machine.scheduler.run_for(0.001)
    assert seen == [simulated.log.max_offset] == [simulated.watermark]
