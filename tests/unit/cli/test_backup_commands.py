"""``mqstore backup …`` and ``mqstore restore``: places, output forms, exit codes, consent."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from typer.testing import CliRunner, Result

from mqstore.cli.main import app
from mqstore.storage.message_store import Durability
from tests.unit.storage.puts import put_message
from tests.unit.storage.stores import message, open_store, put_some
from tests.unit.untouched import entries_of


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "store"
    with open_store(path) as store:
        store.create_topic("T", queues=3)
        put_some(store, 300)
    return path


@pytest.fixture(params=["directory", "file", "memory"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A place of backups: a path, and URLs with and without a directory behind them."""
    places = {
        "directory": str(tmp_path / "backups"),
        "file": f"file://{tmp_path}/backups",
        "memory": f"memory://{uuid4().hex}/backups",
    }
    yield places[request.param]
    MemoryFileSystem.store.clear()


@pytest.fixture
def place(tmp_path: Path) -> str:
    return str(tmp_path / "backups")


def run(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


def lines(*words: str, exit_code: int = 0) -> list[dict[str, Any]]:
    done = run(*words, "-o", "json")
    assert done.exit_code == exit_code, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


def create(url: str, root: Path) -> dict[str, Any]:
    (found,) = lines("backup", "create", url, "--store", str(root))
    return found


def test_a_store_goes_to_a_place_and_comes_back(url: str, root: Path, tmp_path: Path) -> None:
    first = create(url, root)
    with open_store(root) as store:
        put_some(store, 300, start=300)
    second = create(url, root)
    assert second["reusedBytes"] > 0
    listed = lines("backup", "ls", url)
    assert [each["id"] for each in listed] == [first["id"], second["id"]]
    assert lines("backup", "verify", url, "--all") == []

    pruned = lines("backup", "prune", url, "--keep", "1", "--yes")
    target = tmp_path / "restored"
    (restored,) = lines("restore", url, str(target))

    assert pruned[0]["removed"] == [first["id"]]
    assert (restored["backup"], restored["end"]) == (second["id"], second["end"])
    with open_store(target) as copy:
        assert copy.lookups.queue_range("T", 0).max_offset == 200


def test_results_are_printed_in_all_forms(place: str, root: Path, tmp_path: Path) -> None:
    done = run("backup", "create", place, "--store", str(root))
    assert done.exit_code == 0
    assert "it ends at offset" in done.stdout
    listed = run("backup", "ls", place)
    assert listed.stdout.splitlines()[0].split()[:2] == ["BACKUP", "CREATED"]
    rows = run("backup", "ls", place, "-o", "csv").stdout.splitlines()
    assert rows[0].startswith("backup,created,begin,end")
    assert len(rows) == 2
    assert run("backup", "ls", place, "-o", "yaml").stdout.startswith("- ")
    assert "is whole" in run("backup", "verify", place).stdout
    restored = run("restore", place, str(tmp_path / "restored"))
    assert "the last message is of" in restored.stdout


def test_the_store_may_be_named_by_the_environment(
    place: str, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("backup", "create", place).exit_code == 2
    monkeypatch.setenv("MQSTORE_STORE", str(root))
    assert run("backup", "create", place).exit_code == 0


def test_dry_runs_change_nothing(place: str, root: Path, tmp_path: Path) -> None:
    assert lines("backup", "create", place, "--store", str(root), "--dry-run")[0]["dryRun"]
    assert not Path(place).exists()
    create(place, root)
    create(place, root)
    before = entries_of(tmp_path)
    plan = lines("backup", "prune", place, "--keep", "1", "--dry-run")
    assert len(plan[0]["removed"]) == 1
    (shown,) = lines("restore", place, str(tmp_path / "new"), "--dry-run")
    assert shown["readBytes"] > 0
    assert entries_of(tmp_path) == before


def test_destruction_needs_consent(place: str, root: Path, tmp_path: Path) -> None:
    create(place, root)
    create(place, root)
    refused = run("backup", "prune", place, "--keep", "1")
    assert refused.exit_code == 2
    assert "--yes" in refused.output
    assert len(lines("backup", "ls", place)) == 2
    target = tmp_path / "restored"
    lines("restore", place, str(target))
    before = entries_of(target)
    for words in ((), ("--replace",)):
        again = run("restore", place, str(target), *words)
        assert again.exit_code == 2
        assert entries_of(target) == before
    lines("restore", place, str(target), "--replace", "--yes")
    assert entries_of(target) != before


def test_a_damaged_backup_is_a_finding(place: str, root: Path) -> None:
    created = create(place, root)
    part = min((Path(place) / "log").iterdir())
    part.write_bytes(part.read_bytes()[:-1])
    (found,) = lines("backup", "verify", place, exit_code=1)
    assert (found["name"], found["backups"]) == (f"log/{part.name}", [created["id"]])
    table = run("backup", "verify", place)
    assert (table.exit_code, created["id"] in table.stdout) == (1, True)
    assert run("restore", place, str(Path(place).parent / "restored")).exit_code == 2


def test_a_manifest_that_cannot_be_read_is_named(place: str, root: Path) -> None:
    created = create(place, root)
    manifest = Path(place) / "backups" / f"{created['id']}.json"
    manifest.write_bytes(b"{}")
    listed = run("backup", "ls", place)
    assert listed.exit_code == 1
    assert created["id"] in listed.output
    assert run("backup", "verify", place, "--all").exit_code == 1
    assert run("backup", "verify", place).exit_code == 2
    assert run("backup", "prune", place, "--keep", "1", "--yes").exit_code == 2
    done = lines("backup", "prune", place, "--keep", "1", "--yes", "--drop-unreadable")
    assert done[0]["removed"] == [created["id"]]


def test_the_age_of_the_newest_backup_is_checked(place: str, root: Path) -> None:
    Path(place).mkdir()
    assert run("backup", "ls", place, "--max-age", "1h").exit_code == 1
    create(place, root)
    assert run("backup", "ls", place, "--max-age", "1h").exit_code == 0
    old = run("backup", "ls", place, "--max-age", "0ms")
    assert (old.exit_code, "it is" in old.output) == (1, True)


def test_a_backup_beside_asynchronous_load_ends_with_0(place: str, root: Path) -> None:
    with open_store(root) as store:
        stop = threading.Event()

        def put_on() -> None:
            number = 1000
            while not stop.is_set():
                put_message(store, message(store, number), Durability.ASYNC)
                number += 1

        thread = threading.Thread(target=put_on)
        thread.start()
        try:
            found = create(place, root)
        finally:
            stop.set()
            thread.join()
    assert found["unsyncedBytes"] == 0


def test_unsynced_or_damaged_log_is_a_finding_of_create(place: str, root: Path) -> None:
    with (root / "commitlog" / ("0" * 20)).open("r+b") as file:
        file.seek(5000)
        file.write(b"\xff\xff")
    (found,) = lines("backup", "create", place, "--store", str(root), exit_code=1)
    assert found["damagedBlocks"] == 1


@pytest.mark.parametrize(
    "words",
    [
        ["backup", "create", "PLACE", "--store", "/nothing/here"],
        ["backup", "create", "nosuch://place", "--store", "STORE"],
        ["backup", "create", "PLACE", "--store", "STORE", "--rate", "0"],
        ["backup", "prune", "PLACE"],
        ["backup", "prune", "PLACE", "--keep", "0"],
        ["backup", "prune", "PLACE", "--keep-within", "soon"],
        ["backup", "verify", "PLACE", "--backup", "1"],
        ["backup", "verify", "PLACE", "--all", "--backup", "1"],
        ["backup", "ls", "PLACE", "--max-age", "soon"],
        ["restore", "PLACE", "/new", "--to-offset", "1", "--to-time", "now"],
        ["restore", "PLACE", "/new", "--to-time", "soon"],
        ["restore", "/nothing/there", "/new"],
    ],
    ids=" ".join,
)
def test_wrong_input_is_refused_in_one_line(words: list[str], place: str, root: Path) -> None:
    create(place, root)
    known = {"PLACE": place, "STORE": str(root)}
    done = run(*(known.get(each, each) for each in words))
    assert done.exit_code == 2
    assert done.output.strip()
    assert "Traceback" not in done.output


READS = [
    ["backup", "ls"],
    ["backup", "ls", "--max-age", "1h"],
    ["backup", "verify"],
    ["backup", "verify", "--all"],
    ["backup", "prune", "--keep", "1", "--yes"],
    ["restore", "NEW"],
]
"""Commands that read a place, which is their next argument."""


def read(words: list[str], place: str, tmp_path: Path) -> Result:
    found = [str(tmp_path / "new") if each == "NEW" else each for each in words]
    count = 1 if words[0] == "restore" else 2
    return run(*found[:count], place, *found[count:])


@pytest.mark.parametrize("words", READS, ids=" ".join)
@pytest.mark.parametrize("kind", ["directory", "file", "memory"])
def test_a_place_that_is_not_there_is_refused(words: list[str], kind: str, tmp_path: Path) -> None:
    (tmp_path / "a file").touch()
    places = {
        "directory": f"{tmp_path}/none",
        "file": f"{tmp_path}/a file",
        "memory": f"memory://{uuid4().hex}/none",
    }
    done = read(words, places[kind], tmp_path)
    assert (done.exit_code, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert places[kind].removeprefix("memory:/") in line
    assert "there is no" in line or "is no directory" in line or "there is nothing at" in line


@pytest.mark.parametrize(("words", "code"), list(zip(READS, (0, 1, 2, 2, 0, 2), strict=True)))
def test_a_place_without_a_backup_says_so(words: list[str], code: int, tmp_path: Path) -> None:
    place = tmp_path / "empty"
    place.mkdir()
    done = read(words, str(place), tmp_path)
    assert done.exit_code == code
    assert f"{place} has no backup" in done.stderr or "0 backups stay" in done.stdout


@pytest.mark.parametrize(
    ("place", "why"),
    [
        ("/proc/none", "/proc/none/locks: cannot be made (No such file or directory)"),
        ("STORE/backups", "is in the store"),
        ("STORE/lock", "STORE/lock is in the store"),
        ("FILE", "is no directory: name a directory of backups"),
        ("FILE/below", "is no directory: name a directory of backups"),
    ],
)
def test_a_place_that_cannot_take_backups_is_refused_with_what_to_do(
    place: str, why: str, root: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    before = entries_of(tmp_path)
    names = {"STORE": str(root), "FILE": f"{tmp_path}/file"}
    for name, path in names.items():
        place, why = place.replace(name, path), why.replace(name, path)
    done = run("backup", "create", place, "--store", str(root))
    assert (done.exit_code, len(done.stderr.splitlines())) == (2, 1)
    assert why in done.stderr
    assert "Errno" not in done.stderr
    assert entries_of(tmp_path) == before


class Refusing(MemoryFileSystem):  # type: ignore[misc]  # fsspec has no types
    """A store of objects whose client raises an error of its own."""

    protocol = "refusing"

    def ls(self, path: str, **options: Any) -> Any:
        raise CredentialsError("no credentials were found")


class CredentialsError(Exception):
    pass


def test_an_error_of_a_client_library_is_one_line(root: Path) -> None:
    fsspec.register_implementation("refusing", Refusing, clobber=True)
    done = run("backup", "ls", "refusing://bucket/shop")
    assert done.exit_code == 2
    assert "CredentialsError: no credentials were found" in done.output
