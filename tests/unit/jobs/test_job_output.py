"""The output of a job appears complete or not at all, in any place."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import IO
from uuid import uuid4

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from mqstore.jobs.errors import OutputRefused
from mqstore.jobs.output import Output


@pytest.fixture(params=["directory", "memory"])
def out(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Output]:
    yield Output(str(tmp_path / "out") if request.param == "directory" else f"memory://{uuid4()}")


def read(out: Output, name: str) -> bytes:
    with out.open(name) as file:
        return file.read()


def test_what_is_published_is_there_under_its_name_and_nothing_else_is(out: Output) -> None:
    out.check()
    out.publish({"a/1.txt": lambda f: f.write(b"one"), "a/2.txt": lambda f: f.write(b"two")})
    assert out.names("a") == ["a/1.txt", "a/2.txt"]
    assert (read(out, "a/1.txt"), read(out, "a/2.txt")) == (b"one", b"two")
    assert out.names("b") == []


def test_a_second_run_replaces_what_the_first_one_made(out: Output) -> None:
    for content in (b"old", b"new"):
        out.publish({"a/1.txt": lambda f, content=content: f.write(content)})  # type: ignore[misc]  # bound now
    assert read(out, "a/1.txt") == b"new"
    assert out.names("a") == ["a/1.txt"]


def test_of_a_run_that_fails_half_way_nothing_is_seen(out: Output) -> None:
    def fails(file: IO[bytes]) -> None:
        file.write(b"half")
        raise OSError(28, "No space left on device")

    with pytest.raises(OutputRefused, match="cannot be written to: No space left on device"):
        out.publish({"a/1.txt": lambda f: f.write(b"one"), "a/2.txt": fails})
    assert [name for name in out.names("a") if not Path(name).name.startswith("_staged.")] == []


def test_files_that_are_gone_already_are_dropped_too(out: Output) -> None:
    out.publish({"a/1.txt": lambda f: f.write(b"one")})
    out.drop(["a/1.txt", "a/1.txt", "never/there"])
    assert out.names("a") == []


def test_a_place_that_cannot_be_written_to_is_refused_at_once(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(OutputRefused, match="cannot be written to"):
        Output(str(file / "out")).check()


def test_a_place_that_nothing_here_knows_how_to_reach_is_refused() -> None:
    with pytest.raises(OutputRefused, match="no place to write to"):
        Output("nowhere://x").check()


class NoCredentialsError(Exception):
    """As botocore has one: of no type that Python knows."""


class Locked(MemoryFileSystem):  # type: ignore[misc]  # fsspec has no types
    protocol = "locked"

    def pipe_file(self, path: str, value: bytes, **_: object) -> None:
        raise NoCredentialsError("unable to\nlocate credentials")


def test_an_error_of_cloud_storage_is_one_line() -> None:
    fsspec.register_implementation("locked", Locked, clobber=True)
    with pytest.raises(OutputRefused, match=r"written to: NoCredentialsError: unable to loc"):
        Output("locked://x").check()


def test_a_defect_of_the_writing_code_is_no_refusal(out: Output) -> None:
    with pytest.raises(ZeroDivisionError):
        out.publish({"a": lambda file: file.write(b"x" * (1 // 0))})


def test_a_file_url_is_a_directory(tmp_path: Path) -> None:
    Output(f"file://{tmp_path}/out").publish({"1.txt": lambda f: f.write(b"one")})
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["1.txt"]
