from __future__ import annotations

import threading
from pathlib import Path

import pytest

from mqstore.storage.errors import FencedOff, FenceRefused, FenceUnknown, StoreNotWritable
from mqstore.storage.own.fences import EPOCH_MAX, FENCES_MAX, LEAP_MAX, Fence, Fences
from mqstore.storage.paths import StorePaths
from mqstore.storage.system.posix_files import PosixFileSystem

FILES = PosixFileSystem()


@pytest.fixture
def paths(tmp_path: Path) -> StorePaths:
    found = StorePaths(tmp_path)
    found.ours.mkdir()
    return found


def test_a_fence_survives_and_refuses_lower_epochs(paths: StorePaths) -> None:
    Fences(FILES, paths).raise_to("leader", 7)
    fences = Fences(FILES, paths)
    assert fences.all() == [Fence(name="leader", epoch=7)]
    assert fences.raise_to("leader", 7) == fences.get("leader")
    with pytest.raises(FencedOff) as caught:
        fences.raise_to("leader", 6)
    assert caught.value.fence == {"name": "leader", "givenEpoch": 6, "presentEpoch": 7}
    with pytest.raises(FencedOff), fences.held("leader", 6):
        raise AssertionError("an older epoch got in")
    assert (fences.stands_at("leader", 7), fences.stands_at("leader", 8)) == (True, False)
    with fences.held("leader", 7):
        pass


def test_a_fence_is_raised_before_it_is_held(paths: StorePaths) -> None:
    fences = Fences(FILES, paths)
    with pytest.raises(FenceUnknown), fences.held("leader", 0):
        raise AssertionError("nobody raised it")
    with pytest.raises(FenceUnknown):
        fences.get("leader")
    fences.raise_to("leader", 0)
    with pytest.raises(FenceUnknown), fences.held("leader", 1):
        raise AssertionError("not to that epoch")


def test_a_fence_is_raised_again_in_each_opening(paths: StorePaths) -> None:
    Fences(FILES, paths).raise_to("leader", 7)
    fences = Fences(FILES, paths)
    with pytest.raises(FenceUnknown, match="since the store was opened"), fences.held("leader", 7):
        raise AssertionError("the log's end may be another one")
    fences.raise_to("leader", 7)
    with fences.held("leader", 7):
        pass


def test_a_raise_waits_for_who_holds_the_fence(paths: StorePaths) -> None:
    fences = Fences(FILES, paths)
    fences.raise_to("leader", 1)
    raised = threading.Event()

    def take_over() -> None:
        fences.raise_to("leader", 2)
        raised.set()

    with fences.held("leader", 1):
        other = threading.Thread(target=take_over)
        other.start()
        assert not raised.wait(0.05)
    other.join()
    assert raised.is_set()


def test_what_is_no_fence_is_refused(paths: StorePaths) -> None:
    fences = Fences(FILES, paths)
    for name, epoch in (("", 1), ("a/b", 1), ("x" * 101, 1), ("a", EPOCH_MAX + 1)):
        with pytest.raises(FenceRefused):
            fences.raise_to(name, epoch)
    for number in range(FENCES_MAX):
        fences.raise_to(f"f{number}", 1)
    with pytest.raises(FenceRefused, match="already"):
        fences.raise_to("more", 1)
    fences.raise_to("f0", 2)


def test_a_leap_of_the_epoch_is_refused_and_leaves_the_fence(paths: StorePaths) -> None:
    fences = Fences(FILES, paths)
    fences.raise_to("leader", 7)
    for epoch in (7 + LEAP_MAX + 1, EPOCH_MAX):
        with pytest.raises(FenceRefused, match="raise the fence to the next epoch"):
            fences.raise_to("leader", epoch)
    assert Fences(FILES, paths).get("leader").epoch == 7
    fences.raise_to("leader", 7 + LEAP_MAX)


def test_a_fence_that_was_reset_is_raised_anew(paths: StorePaths) -> None:
    fences = Fences(FILES, paths)
    fences.raise_to("leader", 7)
    fences.raise_to("other", 1)
    fences.reset("leader")
    with pytest.raises(FenceUnknown), fences.held("leader", 7):
        raise AssertionError("it stands nowhere")
    assert Fences(FILES, paths).all() == [Fence(name="other", epoch=1)]
    with pytest.raises(FenceUnknown):
        fences.reset("leader")
    fences.raise_to("leader", 1)
    with fences.held("leader", 1):
        pass


@pytest.mark.parametrize("content", [b"", b"{}", b'{"fences":[{"name":"leader","epoch":1}]'])
def test_a_damaged_file_closes_every_fence(paths: StorePaths, content: bytes) -> None:
    Fences(FILES, paths).raise_to("leader", 7)
    paths.fences.write_bytes(content)
    fences = Fences(FILES, paths)
    for use in (fences.all, lambda: fences.raise_to("leader", 9), lambda: fences.get("leader")):
        with pytest.raises(StoreNotWritable, match="remove the file"):
            use()
    with pytest.raises(StoreNotWritable), fences.held("leader", 7):
        raise AssertionError("the epochs are not known")


def test_a_flipped_bit_is_no_other_epoch(paths: StorePaths) -> None:
    Fences(FILES, paths).raise_to("leader", 7)
    sealed = paths.fences.read_bytes()
    paths.fences.write_bytes(sealed.replace(b'"epoch":7', b'"epoch":3'))
    assert Fences(FILES, paths).damage is not None
