from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from mqstore.storage.metadata import manifest
from mqstore.storage.metadata.manifest import Manifest
from mqstore.storage.paths import StorePaths
from mqstore.storage.recovery import last_run
from mqstore.storage.recovery.view import StoreView, find_segments
from tests.unit.storage.stores import CONFIG, FILES, open_store, put_some


@pytest.fixture(scope="module")
def closed_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("closed") / "store"
    with open_store(root) as store:
        put_some(store, 600)
    return root


@pytest.fixture
def root(closed_once: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(closed_once, tmp_path / "store"))


def view_of(root: Path) -> StoreView:
    with open_store(root, in_place=False, services=False, create=False) as store:
        template = store._parts.directory.view
    paths = StorePaths(root)
    segments = find_segments(FILES, paths, CONFIG.mapped_file_size_commit_log)
    return replace(template, files=FILES, paths=paths, segments=segments)


def kept(root: Path) -> Manifest:
    found = manifest.load(FILES, StorePaths(root).manifest)
    assert found is not None
    return found


def test_a_clean_close_matches_what_it_left(root: Path) -> None:
    assert last_run.still_matches(kept(root), view_of(root))


def test_a_store_that_is_open_again_does_not_match(root: Path) -> None:
    assert not last_run.still_matches(kept(root), replace(view_of(root), abort=True))


def _append_a_record(root: Path) -> None:
    last = sorted((root / "commitlog").iterdir())[-1]
    data = bytearray(last.read_bytes())
    data[kept(root).log.max_offset - int(last.name)] = 1  # type: ignore[union-attr] # a clean close has it
    last.write_bytes(data)


def _garbage_behind_the_end(root: Path) -> None:
    last = sorted((root / "commitlog").iterdir())[-1]
    data = bytearray(last.read_bytes())
    data[-100] = 1
    last.write_bytes(data)


def _another_last_record(root: Path) -> None:
    """Replace the last record by one of the same length, as of another history of the log."""
    last = _with_the_end(root)
    data = bytearray(last.read_bytes())
    data[len(bytes(data).rstrip(b"\0")) - 30] ^= 1
    last.write_bytes(data)


def _without_the_last_record(root: Path) -> None:
    """As an older snapshot of the log has it."""
    last = _with_the_end(root)
    data = last.read_bytes()
    used = len(data.rstrip(b"\0"))
    last.write_bytes(data[: used - 200].ljust(len(data), b"\0"))


def _with_the_end(root: Path) -> Path:
    return [path for path in sorted((root / "commitlog").iterdir()) if any(path.read_bytes())][-1]


def _lose_a_segment(root: Path) -> None:
    sorted((root / "commitlog").iterdir())[0].unlink()


def _shorten_a_segment(root: Path) -> None:
    sorted((root / "commitlog").iterdir())[-1].write_bytes(b"")


def _lose_a_queue_file(root: Path) -> None:
    sorted((root / "consumequeue" / "T" / "1").iterdir())[-1].unlink()


def _lose_a_queue(root: Path) -> None:
    shutil.rmtree(root / "consumequeue" / "T" / "1")


def _add_a_next_queue_file(root: Path) -> None:
    directory = root / "consumequeue" / "T" / "1"
    last = sorted(directory.iterdir())[-1]
    (directory / f"{int(last.name) + last.stat().st_size:020d}").write_bytes(b"")


def _lose_an_index_file(root: Path) -> None:
    sorted((root / "index").iterdir())[0].unlink()


def _change_the_checkpoint(root: Path) -> None:
    path = root / "checkpoint"
    path.write_bytes(b"\1" + path.read_bytes()[1:])


@pytest.mark.parametrize(
    "change",
    [
        _append_a_record,
        _garbage_behind_the_end,
        _another_last_record,
        _without_the_last_record,
        _lose_a_segment,
        _shorten_a_segment,
        _lose_a_queue_file,
        _lose_a_queue,
        _add_a_next_queue_file,
        _lose_an_index_file,
        _change_the_checkpoint,
    ],
)
def test_any_change_makes_it_void(root: Path, change: Callable[[Path], None]) -> None:
    view = view_of(root)
    change(root)
    segments = find_segments(FILES, view.paths, CONFIG.mapped_file_size_commit_log)
    assert not last_run.still_matches(kept(root), replace(view, segments=segments))


def test_one_of_a_release_that_noted_no_tail_is_not_believed(root: Path) -> None:
    found = kept(root)
    assert found.log is not None
    old = found.model_copy(update={"log": found.log.model_copy(update={"tail": None})})
    manifest.save(FILES, StorePaths(root).manifest, old)
    assert not last_run.still_matches(kept(root), view_of(root))
