"""A repository whose writers are killed at any step: every manifest stays usable."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from mqstore.storage.backup import (
    BackupError,
    BackupUnknown,
    Creation,
    RepositoryInUse,
    Rule,
    plan_prune,
    prune,
)
from mqstore.storage.backup.repository import LEASE_S
from mqstore.storage.metadata import sealed_json
from mqstore.storage.seams import Seams
from mqstore.storage.system.posix_files import PosixFileSystem
from tests.forked_processes import start_program
from tests.unit.storage.backup.backups import (
    Clock,
    WatchedObjects,
    back_up,
    flaws,
    messages,
    put_back,
    repository,
    seams_with,
)
from tests.unit.storage.stores import open_store, put_some

PATIENCE_S = 280
PROGRAM = """
import sys
from pathlib import Path
from tests.unit.storage.backup import test_repositories_over_kills as tests
print(getattr(tests, sys.argv[1])(*map(Path, sys.argv[2:])))
"""
"""A process that runs one of the functions ``kill_each_step_…`` of this module."""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "backups"


def no_progress(stage: str, done: int, total: int) -> None:
    pass


def killer(left: int) -> PosixFileSystem:
    """The real files, which kill the process at their n-th operation that changes something."""
    files = PosixFileSystem()

    def wrap(name: str) -> None:
        method = getattr(files, name)

        def call(*arguments: object, **named: object) -> object:
            nonlocal left
            left -= 1
            if left <= 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return method(*arguments, **named)

        setattr(files, name, call)

    for name in ("create", "write", "rename", "unlink", "sync_directory", "make_directories"):
        wrap(name)
    return files


def kill_each_step(change: Callable[[Seams], object], check: Callable[[], None]) -> int:
    """Run a change in forks that are killed at their first, second, … step, until one ends by
    itself; check after each. Returns the number of kills."""
    for step in count(1):
        pid = os.fork()
        if pid == 0:
            change(seams_with(files=killer(step)))
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        check()
        if os.WIFEXITED(status):
            assert os.WEXITSTATUS(status) == 0
            return step - 1
    raise AssertionError


def kill_each_step_of_create(root: Path, place: Path) -> int:
    first = repository(place).get(None).id

    def check() -> None:
        assert flaws(place) == []
        assert next(repository(place).whole()).id == first

    def change(seams: Seams) -> None:
        Creation(root, repository(place, seams=seams), seams).run()

    return kill_each_step(change, check)


def kill_each_step_of_prune(root: Path, place: Path) -> int:
    newest = repository(place).get(None).id

    def check() -> None:
        assert flaws(place) == []
        assert list(repository(place).whole())[-1].id == newest

    def change(seams: Seams) -> None:
        prune(repository(place, seams=seams), Rule(1), no_progress)

    return kill_each_step(change, check)


def kills_of(function: str, *paths: Path) -> int:
    """Run a function of this module in a process without threads; its result."""
    process = start_program(PROGRAM, function, *map(str, paths))
    output, errors = process.communicate(PATIENCE_S)
    assert process.wait() == 0, errors
    return int(output)


def test_a_kill_at_any_step_of_a_backup_leaves_the_older_ones_whole(
    root: Path, place: Path
) -> None:
    with open_store(root) as store:
        put_some(store, 60)
    back_up(root, place)
    with open_store(root) as store:
        put_some(store, 300, start=60)

    kills = kills_of("kill_each_step_of_create", root, place)

    assert kills > 15
    assert flaws(place) == []  # the lock of a killed process was no obstacle
    assert not list((place / "log").glob("*.staged"))


def test_a_kill_at_any_step_of_pruning_leaves_what_is_listed_whole(root: Path, place: Path) -> None:
    for start in (0, 300, 600):
        with open_store(root) as store:
            put_some(store, 300, start=start)
        newest = back_up(root, place).backup.id
    (place / "log" / "orphan").write_bytes(b"of an interrupted backup")

    assert kills_of("kill_each_step_of_prune", root, place) > 5

    assert [each.id for each in repository(place).whole()] == [newest]
    needed = {part.name for each in repository(place).whole() for part in each.objects()}
    assert set(repository(place).objects.sizes("log")) == {
        name for name in needed if name.startswith("log/")
    }


def test_a_store_of_objects_that_stops_after_any_write_keeps_the_older_backup(
    root: Path, place: Path, tmp_path: Path
) -> None:
    with open_store(root) as store:
        put_some(store, 200)
        before = messages(store)
    first = back_up(root, place).backup
    with open_store(root) as store:
        put_some(store, 200, start=200)
    for allowed in range(100):
        left = allowed

        def stop(kind: str, name: str) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise OSError("the place does not answer")

        try:
            back_up(root, place, WatchedObjects(place, stop))
        except OSError:
            clear_locks(place)
            assert [each.id for each in repository(place).whole()] == [first.id]
            assert flaws(place) == []
        else:
            break
    assert allowed > 3
    put_back(place, tmp_path / "restored", backup=first)
    with open_store(tmp_path / "restored") as copy:
        assert messages(copy) == before


def clear_locks(place: Path) -> None:
    """End the lease of a lock that could not be removed, for which another machine would wait."""
    for path in (place / "locks").glob("*"):
        path.unlink()


def test_one_process_at_a_time_changes_a_repository(root: Path, place: Path) -> None:
    with open_store(root) as store:
        put_some(store, 20)
    with repository(place).exclusive("test"):
        with pytest.raises(RepositoryInUse, match="test"):
            back_up(root, place)
        with pytest.raises(RepositoryInUse):
            prune(repository(place), Rule(1), no_progress)
    back_up(root, place)
    assert not list((place / "locks").iterdir())


def test_the_lock_of_another_machine_ends_with_its_lease(place: Path) -> None:
    clock = Clock()
    found = repository(place, seams=seams_with(clock=clock))
    with found.exclusive("first") as lease:
        of_another(place, "host", "elsewhen")
        clock.ahead_s = LEASE_S / 2
        with pytest.raises(RepositoryInUse), found.exclusive("second"):
            pass
        clock.ahead_s = LEASE_S + 1
        with found.exclusive("third"):
            pass
        with pytest.raises(RepositoryInUse, match="stopped for so long"):
            lease.require()


def test_a_lock_is_renewed(place: Path) -> None:
    clock = Clock()
    found = repository(place, seams=seams_with(clock=clock))
    with found.exclusive("long") as lease:
        of_another(place, "host", "elsewhen")
        for _ in range(3):
            clock.ahead_s += LEASE_S * 0.9
            lease.renew()
            of_another(place, "host", "elsewhen")
        with pytest.raises(RepositoryInUse), found.exclusive("second"):
            pass
        lease.require()


def of_another(place: Path, name: str, value: str) -> None:
    """Let the lock name another host."""
    (path,) = (place / "locks").iterdir()
    content = json.loads(sealed_json.unseal(path.read_bytes()))
    path.write_bytes(sealed_json.seal(json.dumps({**content, name: value})))


def test_a_torn_manifest_is_no_backup(root: Path, place: Path) -> None:
    """As a place leaves it that does not write in one step."""
    for start in (0, 100):
        with open_store(root) as store:
            put_some(store, 100, start=start)
        back_up(root, place)
    newest = max((place / "backups").iterdir())
    newest.write_bytes(newest.read_bytes()[:-20])

    listed = list(repository(place).listed())

    assert [each.backup is None for each in listed] == [False, True]
    assert repository(place).get(None).id == listed[0].id
    with pytest.raises(BackupError, match="--drop-unreadable"):
        plan_prune(repository(place), Rule(1))
    found = prune(repository(place), Rule(1, drops_unreadable=True), no_progress)
    assert found.removed == (listed[1].id,)
    assert flaws(place) == []
    assert back_up(root, place).new_parts > 0


@pytest.mark.parametrize("number", [1, 2])
def test_pruning_keeps_what_the_kept_backups_share(root: Path, place: Path, number: int) -> None:
    ids = []
    for start in range(0, 1200, 300):
        with open_store(root) as store:
            put_some(store, 300, start=start)
        ids.append(back_up(root, place).backup.id)
    prune(repository(place), Rule(number), no_progress)
    assert [each.id for each in repository(place).whole()] == ids[-number:]
    assert flaws(place) == []


def test_pruning_keeps_backups_for_their_age_too(root: Path, place: Path) -> None:
    with open_store(root) as store:
        put_some(store, 30)
    created = [back_up(root, place).backup for _ in range(4)]
    rule = Rule(1, since_ms=created[1].created_ms)
    assert plan_prune(repository(place), rule).removed == (created[0].id,)


def test_an_unknown_backup_is_named(root: Path, place: Path) -> None:
    with pytest.raises(BackupUnknown, match="no backup that can be read"):
        repository(place).get(None)
    with pytest.raises(BackupUnknown, match="no id"):
        repository(place).get("../../etc/passwd")
    with pytest.raises(BackupUnknown, match="has no backup"):
        repository(place).get("20260101T000000.000Z")


def test_verification_finds_what_is_missing_or_changed(root: Path, place: Path) -> None:
    with open_store(root) as store:
        put_some(store, 1000)
    back_up(root, place)
    parts = sorted((place / "log").iterdir())
    parts[0].unlink()
    parts[1].write_bytes(parts[1].read_bytes()[:-1])
    content = bytearray(parts[2].read_bytes())
    content[100] ^= 1
    parts[2].write_bytes(content)
    parts[3].write_bytes(parts[3].read_bytes() + b"x")

    found = flaws(place)

    assert [each.name for each in found] == [f"log/{path.name}" for path in parts[:4]]
    assert "is missing" in found[0].why
    assert "CRC-32C" in found[2].why
