"""Archives of directories whose files keep their holes."""

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path

import pytest

from mqstore.cli.kube.sparse_archive import pack, size_on_disk

PAGE = 4096
FILES = {
    "empty": (0, []),
    "whole": (3 * PAGE, [(0, 3 * PAGE)]),
    "short": (5, [(0, 5)]),
    "hole": (1 << 20, []),
    "middle": (1 << 20, [(64 * PAGE, PAGE)]),
    "both ends": ((1 << 20) + 7, [(0, PAGE), (1 << 20, 7)]),
    "many": (64 * PAGE, [(number * PAGE, PAGE) for number in range(0, 64, 2)]),
    "large": (5 << 20, [(1 << 20, 3 << 20)]),
}
"""Size of each file, and where it has data."""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    root = tmp_path / "source"
    (root / "folder").mkdir(parents=True)
    for name, (size, parts) in FILES.items():
        with (root / "folder" / name).open("wb") as file:
            file.truncate(size)
            for start, length in parts:
                file.seek(start)
                file.write(bytes([1 + start % 251]) * length)
    return root


def packed(source: Path) -> bytes:
    archive = io.BytesIO()
    assert sum(pack(archive, source)) == size_on_disk(source)
    return archive.getvalue()


def contents(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_tar_unpacks_the_files_with_their_holes(source: Path, tmp_path: Path) -> None:
    raw = packed(source)
    assert len(raw) < size_on_disk(source) + (64 << 10)
    (target := tmp_path / "target").mkdir()
    subprocess.run(["tar", "--extract", "--file=-", f"--directory={target}"], input=raw, check=True)
    assert contents(target) == contents(source)
    assert size_on_disk(target) == size_on_disk(source)


def test_python_reads_the_same_files(source: Path) -> None:
    with tarfile.open(fileobj=io.BytesIO(packed(source))) as members:
        for member in members:
            if member.isreg():
                file = members.extractfile(member)
                assert file is not None
                assert file.read() == (source / member.name).read_bytes()


def test_size_on_disk_leaves_holes_out(source: Path) -> None:
    data = sum(-(-length // PAGE) * PAGE for _, parts in FILES.values() for _, length in parts)
    assert size_on_disk(source) == data
