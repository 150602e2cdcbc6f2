"""RocketMQ's checkpoint page."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from mqstore.storage.errors import CheckpointError
from mqstore.storage.layout import CHECKPOINT_SIZE, StoreFormat
from mqstore.storage.system.threads import production_seams
from mqstore.storage.tables.checkpoint import Checkpoint

V4, V5 = StoreFormat.V4_9, StoreFormat.V5_X


def open_checkpoint(path: Path, store_format: StoreFormat = V4) -> Checkpoint:
    return Checkpoint.open(path, store_format, production_seams())


def test_a_new_one_is_a_page_of_zeros(tmp_path: Path) -> None:
    path = tmp_path / "store" / "checkpoint"

    checkpoint = open_checkpoint(path)

    assert path.read_bytes() == bytes(CHECKPOINT_SIZE)
    assert (checkpoint.physic_ms, checkpoint.logics_ms, checkpoint.index_ms) == (0, 0, 0)


@pytest.mark.parametrize("store_format", [V4, V5])
def test_values_are_read_back_from_disk(tmp_path: Path, store_format: StoreFormat) -> None:
    path = tmp_path / "checkpoint"
    checkpoint = open_checkpoint(path, store_format)
    checkpoint.physic_ms, checkpoint.logics_ms, checkpoint.index_ms = 11, 22, 33
    checkpoint.master_flushed_offset, checkpoint.confirm_offset = 44, 55
    assert path.read_bytes() == bytes(CHECKPOINT_SIZE)

    checkpoint.flush()

    offsets = (44, 55) if store_format is V5 else (0, 0)
    assert path.read_bytes() == struct.pack(">5q", 11, 22, 33, *offsets).ljust(4096, b"\0")
    again = open_checkpoint(path, store_format)
    assert (again.physic_ms, again.logics_ms, again.index_ms) == (11, 22, 33)
    assert (again.master_flushed_offset, again.confirm_offset) == offsets


def test_bytes_that_are_not_ours_stay(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    path.write_bytes(bytes(range(256)) * 16)

    checkpoint = open_checkpoint(path)
    checkpoint.physic_ms = checkpoint.logics_ms = checkpoint.index_ms = 1
    checkpoint.flush()
    checkpoint.close()

    assert path.read_bytes()[24:] == (bytes(range(256)) * 16)[24:]


@pytest.mark.parametrize("size", [0, 24, 4095, 8192])
def test_a_wrong_size_is_refused(tmp_path: Path, size: int) -> None:
    path = tmp_path / "checkpoint"
    path.write_bytes(bytes(size))

    with pytest.raises(CheckpointError, match=f"{size} bytes long"):
        open_checkpoint(path)


def test_read_only_makes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"

    with pytest.raises(FileNotFoundError):
        Checkpoint.open(path, V4, production_seams(), writable=False)

    assert not path.exists()


@pytest.mark.parametrize(
    ("physic", "logics", "expected"),
    [
        (0, 0, 0),
        (10_000, 9_000, 6_000),
        (9_000, 10_000, 6_000),
        (2_000, 10_000, 0),
    ],
)
def test_recovery_starts_three_seconds_before_the_lesser_time(
    tmp_path: Path, physic: int, logics: int, expected: int
) -> None:
    checkpoint = open_checkpoint(tmp_path / "checkpoint")
    checkpoint.physic_ms, checkpoint.logics_ms = physic, logics

    assert checkpoint.min_ms == expected
