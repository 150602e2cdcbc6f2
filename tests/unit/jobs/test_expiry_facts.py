"""Facts that a store directory has of its own retention."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from mqstore.jobs.errors import NoStore, WrongUsage
from mqstore.jobs.expiry import facts_at_path
from mqstore.storage.admin.group_offsets import Commit
from mqstore.storage.retention.plan import Why
from tests.unit.jobs.written import written
from tests.unit.storage.stores import CONFIG, open_store, put_some

HOUR_MS = 3_600_000


def test_a_store_at_rest_has_its_retention_rule_and_the_offsets_of_all_groups(
    tmp_path: Path,
) -> None:
    root = tmp_path / "store"
    config = CONFIG.model_copy(update={"file_reserved_time": 5, "keep_for_groups": "g"})
    with open_store(root, config) as store:
        put_some(store, 1000)
        store.offsets.commit("g", [Commit("T", 0, 7)])
        store.retention.put_pin("p", 0, 10, lease_s=1000, why="")
        store_id = store.status().store_id
    found = facts_at_path.look(root)
    assert found.name == f"{store_id[:8]}-0"
    assert (found.config.file_reserved_time, found.config.keep_for_groups) == (5, "g")
    assert found.consumed == {("g", "T"): {0: 7}}
    assert [str(pin) for pin in found.pins] == ["pin p"]
    assert found.honours_holds
    assert (found.min_offset, found.max_offset) == (0, found.dispatched)
    assert len(found.disks.volumes) == 2


def test_segments_are_planned_by_when_they_were_written_and_by_the_requested_hours(
    tmp_path: Path,
) -> None:
    root = written(tmp_path / "store")
    first, *_ = sorted((root / "commitlog").iterdir())
    modified_ms = time.time_ns() // 1_000_000 - 50 * HOUR_MS
    os.utime(first, ns=(0, modified_ms * 1_000_000))
    found = facts_at_path.look(root)
    for hours, why in ((72, Why.IN_TIME), (49, Why.HOUR)):
        planned = found.planned([], hours).segments
        assert planned[0].why in (why, Why.EXPIRED if why is Why.HOUR else why)
        assert planned[0].expires_ms == modified_ms + hours * HOUR_MS
        assert planned[-1].why is Why.NEWEST


@pytest.mark.parametrize("deletes", [True, False])
def test_the_rule_is_that_of_the_process_that_had_the_store_last(
    tmp_path: Path, *, deletes: bool
) -> None:
    root = tmp_path / "store"
    config = CONFIG.model_copy(update={"file_reserved_time": 5})
    with open_store(root, config, deletes=not deletes) as store:
        put_some(store, 1000)
    with open_store(root, config, deletes=deletes):
        pass
    first = min((root / "commitlog").iterdir())
    os.utime(first, ns=(0, time.time_ns() - 6 * HOUR_MS * 1_000_000))
    found = facts_at_path.look(root)
    planned = found.planned([], found.config.file_reserved_time)
    assert planned.deletes == deletes
    assert (found.config.file_reserved_time == 5) == deletes
    assert (planned.segments[0].not_before_ms is not None) == deletes
    assert found.planned([], 5).segments[0].not_before_ms is not None  # what if


def test_a_broker_that_had_the_store_last_heeds_no_holds(tmp_path: Path) -> None:
    root = written(tmp_path / "store", 10)
    (root / "lock").write_text("lock")
    os.utime(root / "lock", (1, 1))
    assert not facts_at_path.look(root).honours_holds


def test_the_settings_of_a_broker_are_those_that_are_named(tmp_path: Path) -> None:
    root = written(tmp_path / "store", 10)
    conf = tmp_path / "broker.conf"
    conf.write_text("# of ours\nbrokerName = b\nfileReservedTime = 48\ndeleteWhen=01;02\n")
    found = facts_at_path.look(root, conf).config
    assert (found.file_reserved_time, found.delete_when) == (48, "01;02")


def test_settings_that_cannot_be_are_refused_with_their_name(tmp_path: Path) -> None:
    root = written(tmp_path / "store", 10)
    conf = tmp_path / "broker.conf"
    conf.write_text("deleteWhen=25\n")
    with pytest.raises(WrongUsage, match=r"broker.conf: deleteWhen: .*'25' is no hour of the day"):
        facts_at_path.look(root, conf)
    conf.write_text("brokerId=0\nfileReservedTme=48\n")
    with pytest.raises(WrongUsage, match=r"'fileReservedTme' \(did you mean fileReservedTime"):
        facts_at_path.look(root, conf)
    conf.write_bytes(b"deleteWhen=04\nstorePathRootDir=\\usr")
    with pytest.raises(WrongUsage, match=r"broker.conf is no broker.conf \(line 2: "):
        facts_at_path.look(root, conf)


def test_the_settings_of_a_broker_are_read_as_java_reads_them(tmp_path: Path) -> None:
    root = written(tmp_path / "store", 10)
    conf = tmp_path / "broker.conf"
    conf.write_bytes(
        b"! \xe4\xb8\xad\nbrokerRole SLAVE\nfileReservedTime:\\\n  48\n"
        b"disk_max_used_space_ratio=60\n"
    )
    found = facts_at_path.look(root, conf).config
    assert (found.file_reserved_time, found.disk_max_used_space_ratio) == (48, 60)
    conf.write_text("fileReservedTime=48 \n")
    with pytest.raises(WrongUsage, match="fileReservedTime=48 : a broker reads no integer"):
        facts_at_path.look(root, conf)


def test_what_is_no_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NoStore, match="holds no store"):
        facts_at_path.look(tmp_path)
    with pytest.raises(NoStore, match="No such file"):
        facts_at_path.look(written(tmp_path / "store", 10), tmp_path / "no.conf")
