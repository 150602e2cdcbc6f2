"""Backups that no writer of ours made: what they may read, fill and claim is bounded."""

from __future__ import annotations

import base64
import gc
import json
import re
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c
from typer.testing import CliRunner

from mqstore.cli.main import app
from mqstore.storage.admin import Commit
from mqstore.storage.backup import (
    BackupDamaged,
    BackupError,
    Restoration,
    Rule,
    TargetRefused,
    flaws_of,
    manifest,
    plan_prune,
    repository,
    restoring,
)
from mqstore.storage.backup.manifest import QueueStart
from mqstore.storage.metadata import sealed_json
from mqstore.storage.seams import DiskUsage
from mqstore.storage.system.posix_files import PosixFileSystem
from mqstore.storage.system.threads import production_seams
from tests.unit.storage.backup import backups
from tests.unit.storage.backup.backups import back_up, flaws, put_back
from tests.unit.storage.stores import open_store, put_some

Document = dict[str, Any]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "backups"


@pytest.fixture
def made(root: Path, place: Path) -> Path:
    """A store of three segments, and a backup of it."""
    with open_store(root) as store:
        store.create_topic("T", queues=3)
        put_some(store, 600)
        store.groups.put("g", lambda found: found)
        store.offsets.commit("g", [Commit("T", 0, 100)])
    back_up(root, place)
    return place


def document(path: Path) -> Document:
    found: Document = json.loads(sealed_json.unseal(path.read_bytes()))
    return found


def seal(content: Document) -> bytes:
    """The bytes of a document, with values that Python's encoder does not write."""
    text = json.dumps(content).replace('"HUGE"', "1" + "0" * 5000)
    return sealed_json.seal(text.replace('"NESTED"', "[" * 100_000 + "]" * 100_000))


def forge(place: Path, change: Callable[[Document], object]) -> None:
    """Change the manifest; its seal fits."""
    (path,) = (place / "backups").iterdir()
    content = document(path)
    change(content)
    path.write_bytes(seal(content))


def forge_tables(place: Path, change: Callable[[Document], object]) -> None:
    """Change the small files; their seal, and what the manifest says of them, fit."""
    (path,) = (place / "tables").iterdir()
    content = document(path)
    change(content)
    path.write_bytes(raw := seal(content))
    forge(place, lambda found: found["tables"].update(size=len(raw), crc32C=crc32c(raw)))


def part(content: Document, number: int = 0) -> Document:
    found: Document = content["segments"][number]["parts"][0]
    return found


FORGED: dict[str, Callable[[Document], object]] = {
    "a name above the place": lambda m: part(m).update(name="../x"),
    "a name above its folder": lambda m: part(m).update(name="log/../../x"),
    "an absolute name": lambda m: part(m).update(name="/etc/passwd"),
    "a name with NUL": lambda m: part(m).update(name="log/a\0b"),
    "tables above the place": lambda m: m["tables"].update(name="../x"),
    "a size beyond 64 bits": lambda m: part(m).update(size=2**70),
    "a size of 5,001 digits": lambda m: part(m).update(size="HUGE"),
    "a start beyond 64 bits": lambda m: part(m).update(start=2**70),
    "a checksum below 0": lambda m: part(m).update(crc32C=-1),
    "a time beyond the year 9999": lambda m: m.update(createdMs=2**62),
    "an end beyond 64 bits": lambda m: m.update(end=2**70),
    "an end before its log": lambda m: m.update(end=1),
    "segments larger than any": lambda m: m.update(segmentSize=2**40),
    "a segment beside its place": lambda m: m["segments"][1].update(offset=1),
    "one segment twice": lambda m: m["segments"].insert(0, m["segments"][0]),
    "a segment without parts": lambda m: m["segments"][0].update(parts=[]),
    "parts larger than a segment": lambda m: part(m).update(size=2**40),
    "a gap between parts": lambda m: part(m).update(start=4096),
    "tables larger than any": lambda m: m["tables"].update(size=2**40),
    "another id": lambda m: m.update(id="20200101T000000.000Z"),
    "nested too deeply": lambda m: m.update(extra="NESTED"),
}


@pytest.mark.parametrize("forged", FORGED)
def test_a_manifest_that_is_no_log_is_refused_before_an_object_is_read(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forged: str
) -> None:
    (tmp_path / "x").write_bytes(b"outside")
    forge(made, FORGED[forged])
    (id_,) = (path.stem for path in (made / "backups").iterdir())
    read = set[str]()
    reads = PosixFileSystem.read_range

    def watched(self: PosixFileSystem, path: Path, *places: int, keep: bool) -> bytes:
        read.add(path.parent.name)
        return reads(self, path, *places, keep=keep)

    monkeypatch.setattr(PosixFileSystem, "read_range", watched)

    found = backups.repository(made)
    (listed,) = found.listed()
    assert listed.backup is None
    with pytest.raises(BackupDamaged) as caught:
        found.get(id_)
    assert read == {"backups"}
    assert "\n" not in str(caught.value)
    assert "set_int_max_str_digits" not in str(caught.value)


class Endless:
    """Objects whose documents never end; counts the bytes that were taken of them."""

    place = "endless"

    def __init__(self) -> None:
        self.taken = 0

    def sizes(self, folder: str) -> dict[str, int]:
        return {f"{folder}/20200101T000000.000Z.json": 1}

    def read(self, name: str) -> Iterator[bytes]:
        while True:
            self.taken += 1024
            yield bytes(1024)

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(name)


def test_a_document_is_read_up_to_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repository, "MANIFEST_SIZE_MAX", 64 << 10)
    objects = Endless()
    (listed,) = backups.repository(Path("/"), objects).listed()
    assert listed.backup is None
    assert "more than 65536 bytes" in (listed.why or "")
    assert objects.taken == (64 << 10) + 1024


def test_manifests_are_read_one_by_one(
    root: Path, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Verifying, listing and pruning keep none of them while the next one is read."""
    for _ in range(3):
        back_up(root, made)
    kept = weakref.WeakSet[manifest.Backup]()
    most, read = 0, manifest.Backup.model_validate_json

    def watched(text: bytes) -> manifest.Backup:
        nonlocal most
        gc.collect()
        most = max(most, sum(1 for each in kept if each.segments))
        kept.add(found := read(text))
        return found

    monkeypatch.setattr(manifest.Backup, "model_validate_json", watched)
    place = backups.repository(made)
    assert list(flaws_of(place, place.whole(), production_seams(), lambda *_: None)) == []
    assert len(plan_prune(place, Rule(2)).kept) == 2
    assert CliRunner().invoke(app, ["backup", "ls", str(made)]).exit_code == 0
    assert CliRunner().invoke(app, ["backup", "verify", str(made), "--all"]).exit_code == 0
    assert most <= 1


@pytest.mark.parametrize("folder", ["log", "tables", "backups"])
def test_a_folder_that_is_a_link_is_not_followed(made: Path, tmp_path: Path, folder: str) -> None:
    (made / folder).rename(tmp_path / "outside")
    (made / folder).symlink_to(tmp_path / "outside")
    with pytest.raises(OSError, match="symbolic link"):
        flaws(made)
    with pytest.raises(OSError, match="symbolic link"):
        backups.repository(made).objects.write(f"{folder}/x", 1, [b"x"])
    assert not (tmp_path / "outside" / "x").exists()


def start(index: int, topic: str = "T", queue_id: int = 0, **other: int) -> Document:
    found = {"physicalOffset": -1, "size": 1, "tagsCode": 0, **other}
    return {"topic": topic, "queueId": queue_id, "index": index, **found}


STARTS: dict[str, list[Document]] = {
    "a topic above its folder": [start(5, topic="../../x")],
    "one queue twice": [start(0), start(0)],
    "a queue offset beyond 64 bits": [start(2**70)],
    "a queue offset whose place is beyond 64 bits": [start(2**62)],
    "a queue below 0": [start(0, queue_id=-1)],
    "a record behind the begin": [start(5, physicalOffset=2**40)],
    "a size beyond 32 bits": [start(5, size=2**40)],
    "tags beyond 64 bits": [start(5, tagsCode=2**70)],
}


@pytest.mark.parametrize("forged", STARTS)
def test_a_begin_of_a_queue_that_none_has_is_found_by_both(
    made: Path, tmp_path: Path, forged: str
) -> None:
    forge_tables(made, lambda found: found.update(queueStarts=STARTS[forged]))
    assert len(flaws(made)) == 1
    with pytest.raises(BackupDamaged):
        put_back(made, tmp_path / "restored")
    assert not (tmp_path / "restored.restoring").exists()


def test_begins_of_queues_that_the_volume_has_no_room_for_fill_nothing(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = 4 << 20
    last = 49  # of a file of 50 entries
    many = [start(last, queue_id=n, physicalOffset=0) for n in range(free // (last * 20))]
    forge_tables(made, lambda found: found.update(queueStarts=many))
    monkeypatch.setattr(PosixFileSystem, "usage", lambda *_: DiskUsage(free, 0, free))
    with pytest.raises(TargetRefused, match="begins of its queues"):
        put_back(made, tmp_path / "restored")
    assert not (tmp_path / "restored.restoring").exists()


@pytest.mark.parametrize("consents", [False, True])
def test_begins_of_queues_fill_no_volume_without_consent(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, consents: bool
) -> None:
    """A kilobyte of begins took 6 MB of the volume for each queue, as long as it had room."""
    backup, usual, last = backups.repository(made).get(None), 4 << 10, 49
    count = max(usual, len(backup.segments) * backup.segment_size) // (last * 20) + 1
    many = [start(last, topic="X", queue_id=n, physicalOffset=0) for n in range(count)]
    forge_tables(made, lambda found: found.update(queueStarts=many))
    backup = backups.repository(made).get(None)
    monkeypatch.setattr(restoring, "BEGINS_USUAL", usual)
    restoration = Restoration(
        *(backups.repository(made), backup, tmp_path / "restored", production_seams()),
        large_queues=consents,
    )
    written: list[QueueStart] = []
    monkeypatch.setattr(restoration, "_write_log", lambda: (backup.end, None))
    monkeypatch.setattr(restoration, "_write_queue_start", lambda each, _: written.append(each))
    monkeypatch.setattr(restoration, "_open_once", lambda _: 0)
    if consents:
        restoration.run(replace=False)
        assert len(written) == len(many)
    else:
        with pytest.raises(TargetRefused, match="--large-queues"):
            restoration.run(replace=False)
        assert not (tmp_path / "restored.restoring").exists()


FILES = (
    *("config/topics.json", "config/consumerOffset.json", "config/subscriptionGroup.json"),
    *("mqstore/format.json", "mqstore/clock.json"),
)
INTEGER = re.compile(r"(?<=[:\[,\s])-?\d+(?=[,\]}\s])")


def changed_texts(text: str) -> Iterator[str]:
    """The text with each of its first integers replaced, and with all of it replaced."""
    for found in list(INTEGER.finditer(text))[:12]:
        for number in (str(2**70), "-1", "1" + "0" * 5000, "1e400", '"x"', "null"):
            yield text[: found.start()] + number + text[found.end() :]
    yield from ("", "[]", "{", '{"a":' * 100_000, "\0", '"\ud800"', "null")


def replace_file(found: Document, name: str, coded: str) -> None:
    found["files"][name] = coded


@pytest.mark.parametrize("name", FILES)
def test_verify_finds_all_from_which_no_store_is_restored(
    made: Path, tmp_path: Path, name: str
) -> None:
    """Verify and restore accept the same contents of a small file, and refuse all others."""
    (path,) = (made / "tables").iterdir()
    raw = base64.b64decode(document(path)["files"][name])
    text = sealed_json.unseal(raw).decode()
    answers = set()
    for changed in changed_texts(text):
        data = changed.encode("utf-8", "surrogatepass")
        coded = base64.b64encode(data).decode()
        forge_tables(made, partial(replace_file, name=name, coded=coded))
        is_whole = not flaws(made)
        try:
            put_back(made, tmp_path / "restored", replace=True)
        except BackupError:
            assert not is_whole, changed[:200]
        else:
            assert is_whole, changed[:200]
        answers.add(is_whole)
    assert False in answers


@pytest.mark.parametrize("name", ["../x", "config/../../x", "log/x", "config/.x", "config/a\0"])
def test_a_small_file_stays_within_its_folder(made: Path, tmp_path: Path, name: str) -> None:
    forge_tables(made, lambda found: found["files"].update({name: "eA=="}))
    assert len(flaws(made)) == 1
    with pytest.raises(BackupDamaged, match="no file of a store"):
        put_back(made, tmp_path / "restored")


def test_tables_of_another_store_are_found(made: Path, tmp_path: Path) -> None:
    forge(made, lambda found: found.update(storeId="0" * 32))
    (found,) = flaws(made)
    assert "different stores" in found.why
    with pytest.raises(BackupDamaged, match="different stores"):
        put_back(made, tmp_path / "restored")


@pytest.mark.parametrize("pid", [0, -1, 2**40])
def test_a_lock_of_no_process_is_no_lock(root: Path, made: Path, pid: int) -> None:
    lock = {"purpose": "x", "host": "x", "pid": pid, "untilMs": 4_000_000_000_000}
    (made / "locks" / "0.json").write_bytes(seal(lock))
    back_up(root, made)


def test_an_id_that_is_no_time_is_named(root: Path, made: Path) -> None:
    (path,) = (made / "backups").iterdir()
    id_ = "99991399T000000.000Z"
    forge(made, lambda found: found.update(id=id_))
    path.rename(path.with_stem(id_))
    with pytest.raises(BackupError, match=id_):
        back_up(root, made)


def test_a_writer_makes_no_document_that_no_reader_takes(
    root: Path, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("TABLES_SIZE_MAX", "MANIFEST_SIZE_MAX"):
        with monkeypatch.context() as patched:
            patched.setattr(f"mqstore.storage.backup.creation.{name}", 100)
            with pytest.raises(BackupError, match="100"):
                back_up(root, made)
