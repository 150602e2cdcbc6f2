"""Epochs of open stores: begun before anything is put, durable, taken over by followers."""

from __future__ import annotations

import errno
from dataclasses import replace
from pathlib import Path

import pytest

from mqstore.storage.errors import DirectoryNotUsable, EpochNotNewer, StoreDamaged, StoreNotWritable
from mqstore.storage.metadata.log_history import Epoch, LogHistory, common_end
from mqstore.storage.options import NEXT_EPOCH
from mqstore.storage.paths import StorePaths, segment_name
from mqstore.storage.recovery import Applier
from mqstore.storage.store_reader import StoreReader
from mqstore.storage.system.threads import production_seams
from tests.unit.storage.stores import abandon, open_store, put_some


def test_a_store_that_was_never_elected_is_of_epoch_0(root: Path) -> None:
    with open_store(root) as store:
        history = store.epochs.history
        assert (history.log_id, history.epochs) == (store.store_id, (Epoch(0, 0),))
        assert not store.epochs.is_compared
        assert store.state.snapshot().log_epoch == 0


def test_an_epoch_begins_at_the_logs_end_and_outlives_a_kill(root: Path) -> None:
    with open_store(root) as store:
        put_some(store, 10)
        end = store.log.max_offset
    store = open_store(root, epoch=7)
    assert store.epochs.history.epochs == (Epoch(0, 0), Epoch(7, end, store.store_id))
    assert store.epochs.led
    put_some(store, 10)
    abandon(store)
    with open_store(root) as store:
        assert store.epochs.newest == 7
        assert store.state.snapshot().log_epoch == 7
        with pytest.raises(EpochNotNewer, match="epoch 7 has begun"):
            store.begin_epoch(7)
        store.begin_epoch(8)
    with open_store(root, epoch=NEXT_EPOCH) as store:
        assert store.epochs.newest == 9


def test_an_epoch_begins_at_the_first_record_that_recovery_gives_up(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A follower may have it whole: it cuts its log there, and gets what the leader has."""
    store = open_store(root, epoch=1)
    put_some(store, 30)
    follower = store.epochs.history
    offset = store.lookups.records("T", 0, 3).records[0].physical_offset
    store.flush.flush_all()
    abandon(store)
    (root / "mqstore" / "state").unlink()  # so that the whole log is checked
    with (root / "commitlog" / segment_name(0)).open("r+b") as log:
        log.seek(offset + 20)
        log.write(b"?" * 60)
    with monkeypatch.context() as patched, pytest.raises(DirectoryNotUsable):
        patched.setattr(Applier, "apply_to_log", _fail)
        open_store(root, epoch=NEXT_EPOCH)
    with open_store(root, epoch=NEXT_EPOCH) as store:
        (damaged,) = store.recovery.plan.damaged
        assert damaged.offset == offset
        assert store.epochs.history.epochs[-1] == Epoch(3, offset, store.store_id)
        assert common_end(store.epochs.history, follower) == offset
    with open_store(root, epoch=NEXT_EPOCH) as store:
        assert store.epochs.history.epochs[-2:] == (
            Epoch(3, offset, store.store_id),
            Epoch(4, store.log.max_offset, store.store_id),
        )


def _fail(*_: object) -> None:
    raise OSError(errno.EIO, "an error of the disk")


def test_no_epoch_begins_after_a_put(root: Path) -> None:
    with open_store(root) as store:
        put_some(store, 1)
        with pytest.raises(StoreNotWritable, match="before anything is put"):
            store.begin_epoch(1)


def test_a_follower_takes_over_epochs_and_begins_none(root: Path) -> None:
    leader = LogHistory("ab" * 16, (Epoch(0, 0), Epoch(3, 0)), 0, 100)
    with open_store(root, leader="a:1") as store:
        with pytest.raises(StoreNotWritable):
            store.begin_epoch(4)
        store.epochs.adopt(leader)
        assert store.state.snapshot().log_epoch == 3
    with open_store(root) as store:
        assert store.epochs.history.epochs == leader.epochs
        assert store.epochs.history.log_id == leader.log_id
        assert not store.epochs.led
        store.begin_epoch(4)
        assert store.epochs.history.log_id == leader.log_id


def test_a_copy_of_a_broker_has_no_known_origin_until_it_leads(root: Path) -> None:
    with open_store(root, leader="a:1") as store:
        pass
    with open_store(root) as store:
        assert store.epochs.history.log_id is None
        store.begin_epoch(1)
        assert store.epochs.history.log_id == store.store_id


def test_damaged_epochs_are_not_replaced(root: Path) -> None:
    with open_store(root, epoch=1):
        pass
    path = StorePaths(root).epochs
    path.write_bytes(path.read_bytes().replace(b'"led":true', b'"led":fals'))
    with pytest.raises(StoreDamaged, match=r"epochs\.json"):
        open_store(root)


def test_readers_see_nothing_that_a_successor_may_lack_before_logs_are_compared(root: Path) -> None:
    with open_store(root, epoch=1) as store:
        put_some(store, 10)
        shared = store.log.max_offset
    with open_store(root, epoch=2) as store:
        put_some(store, 10, start=10)
        end = store.log.max_offset
    with (
        open_store(root, leader="a:1") as store,
        StoreReader.open(root, production_seams()) as read,
    ):
        assert store.log.max_offset == end
        assert read.snapshot().max_offset == read.snapshot().dispatched_offset == shared
        leader = replace(
            store.epochs.history, epochs=(Epoch(0, 0), Epoch(2, shared), Epoch(3, end))
        )
        store.epochs.adopt(leader)
        assert read.snapshot().max_offset == read.snapshot().dispatched_offset == end
    with open_store(root, leader="a:1") as store:
        assert store.state.snapshot().max_offset == end


def test_group_states_of_a_leader_are_set_aside_when_it_follows(root: Path) -> None:
    with open_store(root, epoch=1) as store:
        paths = store.paths
    for path in (paths.shared_groups, paths.ordered_groups, paths.dead_letters):
        path.write_text("{}")
    with open_store(root, leader="a:1") as store:
        kept = {Path(each.source).name for each in store._parts.quarantine.entries()}
        assert kept == {"shared-groups.json", "ordered-groups.json", "dead-letters.json"}
        assert not paths.shared_groups.exists()
