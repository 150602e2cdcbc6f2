"""Puts without the put lock, beside those with it, in one store."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from mqstore.storage._kernel import Placement
from mqstore.storage.codec.record import Record, scan
from mqstore.storage.message_store import MessageStore, StoreOptions
from mqstore.storage.paths import StorePaths
from tests.simulation import SimulatedMachine
from tests.unit.storage.stores import CONFIG, message, open_store

ROOT = Path("/store")
THREADS, PUTS = 4, 400
BIG = bytes(70_000)
"""Copied without the GIL: other threads run in the middle of such a put."""


def open_simulated(machine: SimulatedMachine) -> MessageStore:
    machine.disk.make_directories(ROOT)
    return MessageStore.open(ROOT, CONFIG, machine.seams, StoreOptions(boot_id="0" * 32, pid=1))


def log_and_derived(machine: SimulatedMachine) -> dict[Path, bytes]:
    paths, files = StorePaths(ROOT), machine.disk
    folders = [paths.commit_log, paths.index]
    folders += [paths.consume_queue / "T" / name for name in files.list(paths.consume_queue / "T")]
    return {
        folder / name: files.read(folder / name)
        for folder in folders
        for name in files.list(folder)
    }


@given(
    st.lists(st.tuples(st.integers(0, 2), st.sampled_from([0, 0, 0, 8, 4, 12])), max_size=150),
    st.integers(0, 3),
)
def test_both_leave_the_same_bytes(puts: list[tuple[int, int]], often: int) -> None:
    left = []
    for is_locked in (True, False):
        machine = SimulatedMachine(1)
        store = open_simulated(machine)
        store.log.end.refused = is_locked  # what needs the lock gets it
        for number, (queue_id, sys_flag) in enumerate(puts):
            store.append(message(store, number, queue_id=queue_id).replace(sys_flag=sys_flag))
            if number % 7 < often:
                machine.scheduler.run_for(0.5)
        store.close()
        left.append(log_and_derived(machine))
    assert left[0] == left[1]


def test_puts_of_many_threads_never_interleave(tmp_path: Path) -> None:
    config = CONFIG.model_copy(
        update={"mapped_file_size_commit_log": 1 << 20, "max_message_size": 1 << 18}
    )
    with open_store(tmp_path / "store", config) as store:

        def work(thread: int) -> None:
            choose = random.Random(thread)
            for number in range(PUTS):
                made = message(store, thread * PUTS + number, queue_id=choose.randrange(3))
                kind = choose.randrange(40)
                if kind == 0:
                    made.body = BIG
                elif kind == 1:
                    made.queue_id = 3 + choose.randrange(5)
                if kind == 2:
                    store.append([made, made], as_batch=True)
                else:
                    store.append(made)

        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(work, range(THREADS)))
        store.wait_for_index()
        records = [
            found
            for file in store.log.files.files
            for found in scan(file.view, 0, file.wrote_position, file.base_offset)
            if isinstance(found, Record)
        ]
        keys = Counter(found.uniq_key for found in records)
        assert len(keys) == THREADS * PUTS
        numbers = defaultdict(list)
        for found in records:
            numbers[found.queue_id].append(found.queue_offset)
            queue = store.queues.get("T", found.queue_id)
            assert queue is not None
            entry = queue.entry(found.queue_offset)
            assert entry is not None
            assert entry.physical_offset == found.physical_offset
        assert all(found == list(range(len(found))) for found in numbers.values())
        times = [found.store_timestamp_ms for found in records]
        assert times == sorted(times)
        assert store.dispatcher.counts == replace(store.dispatcher.counts, defects=0, refused=0)
        assert store.dispatcher.records == len(records)


def test_a_plain_put_needs_no_lock(tmp_path: Path) -> None:
    with open_store(tmp_path / "store") as store:
        store.append(message(store, 0))
        assert isinstance(store.log.end.put_message(message(store, 1)), Placement)
        queue = store.queues.get("T", 0)
        assert queue is not None
        assert queue.max_index == 2
        assert store.state.dispatched_offset == store.state.max_offset == store.log.max_offset
