"""Messages with a time of delivery: waiting here, delivered by a real broker of 5.4.0, and the
other way round, after clean stops and kills."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest

from mqstore.client import Client, NewMessage
from mqstore.storage.codec.record import Record
from mqstore.storage.errors import QueueUnknown
from mqstore.storage.store_reader import StoreReader
from mqstore.storage.system.threads import production_seams
from tests.compat.referee import Referee
from tests.long_runs import few_first
from tests.services.service_processes import Process, writer

pytestmark = [
    pytest.mark.referee,
    pytest.mark.slow,
    pytest.mark.parametrize("referee", ["5.4.0"], indirect=True),  # 4.9 has no timer
]

CONFIG: Final[dict[str, Any]] = {
    "mappedFileSizeCommitLog": 1 << 20,
    "mappedFileSizeConsumeQueue": 2000,
    "maxHashSlotNum": 100,
    "maxIndexNum": 400,
}
OURS: Final[dict[str, Any]] = {
    "mapped_file_size_commit_log": 1 << 20,
    "mapped_file_size_consume_queue": 2000,
    "max_hash_slot_num": 100,
    "max_index_num": 400,
    "store_format": "5.x",
}
SNAPSHOTS: Final[dict[str, Any]] = {
    "timerWheelSnapshotFlush": True,
    "timerWheelSnapshotIntervalMs": 100,
}
"""Settings with which a broker leaves its timer wheel in timerwheel.N."""
TOPIC: Final = "orders"
DELAYS_MS: Final = {"a": 1_500, "b": 2_500, "c": 20_000, "d": 20_900, "e": 22_000}
"""The first two are delivered before the store is handed over, the others after."""
BEFORE: Final = 2
PATIENCE_S: Final = 60


@pytest.fixture(params=few_first(["killed", "stopped"], others=pytest.mark.nightly))
def kills(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "killed")


def request(
    sends: dict[str, int], delivered: int, *, halt: bool = False, **settings: Any
) -> dict[str, Any]:
    return {
        "config": {**CONFIG, **settings},
        "topic": TOPIC,
        "sends": [{"body": body, "delayMs": delay_ms} for body, delay_ms in sends.items()],
        "delivered": delivered,
        "halt": halt,
    }


def await_pending(client: Client, pending: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while client.delays().timed.pending > pending:
        assert time.monotonic() < deadline, client.delays()
        time.sleep(0.02)


def await_wheel(store: Path) -> None:
    """Wait until the wheel is made of the timer log."""
    deadline = time.monotonic() + PATIENCE_S
    while any(store.glob("timerwheel.*")):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def end(process: Process, kills: bool) -> None:
    if kills:
        process.kill()
    else:
        process.process.terminate()
        assert process.ended()[0] == 0


def check_delivered(store: Path) -> None:
    """Each was delivered once, and not before its time."""
    with StoreReader.open(store, production_seams()) as reader:
        found: list[Record] = []
        for queue_id in range(16):
            with suppress(QueueUnknown):
                found += reader.lookups.records(TOPIC, queue_id, 0, 100).records
    assert Counter(each.body.decode() for each in found) == Counter(DELAYS_MS.keys())
    for each in found:
        due_ms = each.born_timestamp_ms + DELAYS_MS[each.body.decode()]
        assert each.store_timestamp_ms >= due_ms


def test_what_waits_here_a_broker_delivers(referee: Referee, tmp_path: Path, kills: bool) -> None:
    store = tmp_path / "store"
    with writer(store, **OURS) as process, Client(process.url) as client:
        client.create_topic(TOPIC, queues=4)
        messages = [NewMessage(body=body, delay_s=ms / 1000) for body, ms in DELAYS_MS.items()]
        client.produce(TOPIC, messages)
        await_pending(client, len(DELAYS_MS) - BEFORE)
        deadline = time.monotonic() + 1.5  # a save of the timer's progress, which a kill would lose
        while time.monotonic() < deadline:
            time.sleep(0.1)
        end(process, kills)
    assert referee.time(store, request({}, len(DELAYS_MS))) == len(DELAYS_MS)
    with writer(store, **OURS) as process, Client(process.url) as client:
        await_pending(client, 0)
        check_delivered(store)


@pytest.mark.parametrize(
    "snapshots", few_first([False, True], others=pytest.mark.nightly), ids=["wheel", "snapshots"]
)
def test_what_waits_at_a_broker_is_delivered_here(
    referee: Referee, tmp_path: Path, kills: bool, snapshots: bool
) -> None:
    store = tmp_path / "store"
    settings = SNAPSHOTS if snapshots else {}
    assert referee.time(store, request(DELAYS_MS, BEFORE, halt=kills, **settings)) == BEFORE
    assert any(store.glob("timerwheel.*")) == snapshots
    with writer(store, **OURS) as process, Client(process.url) as client:
        assert client.delays().timed.pending > 0
        await_pending(client, 0)
        check_delivered(store)
        process.process.terminate()
        assert process.ended()[0] == 0
    assert not any(store.glob("timerwheel.*"))
    assert referee.time(store, request({}, len(DELAYS_MS), **settings)) == len(DELAYS_MS)


def test_what_waits_after_snapshots_and_us_a_broker_delivers(
    referee: Referee, tmp_path: Path, kills: bool
) -> None:
    """The wheel that was made here counts, not the older one of the snapshots."""
    store = tmp_path / "store"
    first = {each: DELAYS_MS[each] for each in "abc"}
    assert referee.time(store, request(first, BEFORE, halt=kills, **SNAPSHOTS)) == BEFORE
    with writer(store, **OURS) as process, Client(process.url) as client:
        messages = [NewMessage(body=each, delay_s=DELAYS_MS[each] / 1000) for each in "de"]
        client.produce(TOPIC, messages)
        await_wheel(store)
        process.process.terminate()
        assert process.ended()[0] == 0
    assert referee.time(store, request({}, len(DELAYS_MS), **SNAPSHOTS)) == len(DELAYS_MS)
    with writer(store, **OURS) as process, Client(process.url) as client:
        await_pending(client, 0)
        check_delivered(store)
