"""Tables and timer files with which a broker does not start; tests/compat/test_broker_starts.py
compares with brokers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mqstore.storage.config import StoreConfig
from mqstore.storage.delay.timer_files import TIMER_LOG_FILE_SIZE
from mqstore.storage.layout import StoreFormat
from mqstore.storage.system.threads import production_seams
from mqstore.storage.verify import Verification
from tests.unit.storage.store_repair.damages import Patient, healthy, make_store

TORN = b'{"offsetTable":{"T'
WHOLE = b'{"offsetTable":{}}'


@pytest.fixture
def patient(tmp_path: Path) -> Patient:
    make_store(tmp_path / "store", StoreFormat.V5_X)
    found = Patient(tmp_path / "store")
    found.without_us()
    return found


def starts(patient: Patient) -> bool:
    verification = Verification(patient.root, StoreConfig(), production_seams())
    list(verification.findings())
    return verification.summary.broker_starts


def write(patient: Patient, name: str, content: bytes, *, at_ns: int = 1 << 60) -> None:
    path = patient.paths.config / name
    path.write_bytes(content)
    os.utime(path, ns=(at_ns, at_ns))


@pytest.mark.parametrize("name", ["topics.json", "consumerOrderInfo.json", "timermetrics"])
def test_a_broker_does_not_start_without_a_readable_table_or_backup(
    patient: Patient, name: str
) -> None:
    write(patient, name, TORN)
    assert starts(patient)
    write(patient, name + ".bak", TORN)
    assert not starts(patient)
    write(patient, name, WHOLE)
    assert starts(patient)


def test_a_broker_reads_the_offsets_that_were_written_last(patient: Patient) -> None:
    for name in ("consumerOffset.json", "consumerOffset.json.bak"):
        write(patient, name, TORN)
    assert not starts(patient)
    write(patient, "lmqConsumerOffset.json", WHOLE, at_ns=1 << 61)
    assert starts(patient)
    write(patient, "lmqConsumerOffset.json", TORN, at_ns=1 << 61)
    write(patient, "lmqConsumerOffset.json.bak", TORN)
    assert not starts(patient)


def test_timer_files_of_other_lengths_stop_a_broker_and_are_set_aside(patient: Patient) -> None:
    patient.paths.timer_log.mkdir()
    for number, size in enumerate((TIMER_LOG_FILE_SIZE, 1_000, 0)):
        with (patient.paths.timer_log / f"{number * TIMER_LOG_FILE_SIZE:020d}").open("wb") as file:
            file.truncate(size)
    patient.paths.timer_wheel.write_bytes(b"x")
    found = [each.file for each in patient.findings() if each.stops_a_broker]
    assert found == ["timerwheel", f"timerlog/{TIMER_LOG_FILE_SIZE:020d}"]
    patient.repair().run()
    healthy(patient)
    assert starts(patient)
