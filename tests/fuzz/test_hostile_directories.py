"""Links, pipes, sockets and giants in a store: all of them are refused."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mqstore.cli.main import app
from mqstore.jobs.errors import NoStore
from mqstore.jobs.log import at_path
from mqstore.storage.errors import DirectoryNotUsable, StorageError, StoreUnsupported
from mqstore.storage.layout import SMALL_FILE_MAX
from mqstore.storage.metadata import sealed_json
from mqstore.storage.paths import StorePaths, segment_name
from mqstore.storage.store_reader import StoreReader
from mqstore.storage.system.threads import production_seams
from mqstore.storage.tables.config_tables import TopicTable
from tests.unit.storage.stores import all_bodies, bodies, open_store, put_some

GIANT = 20 << 30
FILES = (
    "lock",
    "checkpoint",
    "abort",
    f"commitlog/{segment_name(0)}",
    f"commitlog/{segment_name(64 << 10)}",
    "commitlog/stray",
    f"consumequeue/T/0/{segment_name(0)}",
    "config/topics.json",
    "config/topics.json.bak",
    "config/topics.json.tmp",
    "config/consumerOffset.json",
    "index/20240101000000000",
    "mqstore/format.json",
    "mqstore/format.json.tmp",
    "mqstore/state",
    "mqstore/lock",
    "mqstore/running.json",
    "mqstore/deleted-topics.json",
    "mqstore/writer.json",
)
DIRECTORIES = (
    "commitlog",
    "consumequeue",
    "consumequeue/T",
    "consumequeue/T/0",
    "config",
    "index",
    "mqstore",
    "mqstore/blocks",
    "mqstore/quarantine",
    "mqstore/staging",
)


class Hostile:
    """A store with 500 messages, and a directory outside it that nothing may change."""

    def __init__(self, directory: Path, template: Path) -> None:
        self.root = Path(shutil.copytree(template, directory / "store", symlinks=True))
        self.outside = directory / "outside"
        self.outside.mkdir()

    def link(self, name: str) -> None:
        """Move a file or directory out of the store, and leave a link to it."""
        path, target = self.root / name, self.outside / name.replace("/", "-")
        if path.exists():
            path.rename(target)
        else:
            target.write_bytes(b"")
        path.symlink_to(target)

    def pipe(self, name: str) -> None:
        (self.root / name).unlink(missing_ok=True)
        os.mkfifo(self.root / name)

    def socket(self, name: str) -> None:
        (self.root / name).unlink(missing_ok=True)
        os.mknod(self.root / name, stat.S_IFSOCK | 0o600)

    def content(self) -> dict[str, tuple[int, bytes | None]]:
        """Content of every file outside the store."""
        found = [self.outside, *self.outside.rglob("*")]
        return {
            str(path): (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else None)
            for path in found
        }


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("template") / "store"
    with open_store(root) as store:
        store.create_topic("T", queues=3)
        put_some(store, 500)
    return root


@pytest.fixture
def hostile(tmp_path: Path, template: Path) -> Hostile:
    return Hostile(tmp_path, template)


def refuse(root: Path) -> None:
    """Assert that every way to open the store refuses it."""
    for in_place in (True, False):
        with pytest.raises(StorageError):
            open_store(root, in_place=in_place, services=in_place).close()
    with pytest.raises(NoStore):
        at_path.look(root)


@pytest.mark.parametrize("name", ["lock", "config/topics.json", f"commitlog/{segment_name(0)}"])
@pytest.mark.parametrize("kind", ["link", "pipe", "socket"])
def test_commands_end_with_2(hostile: Hostile, kind: str, name: str) -> None:
    getattr(hostile, kind)(name)
    for command in ("verify", "dump"):
        done = CliRunner().invoke(app, ["store", command, str(hostile.root)])
        assert (done.exit_code, name in done.output) == (2, True), command


@pytest.mark.parametrize("name", [*FILES, *DIRECTORIES])
def test_a_link_is_refused_and_nothing_is_changed_behind_it(hostile: Hostile, name: str) -> None:
    hostile.link(name)
    before = hostile.content()
    refuse(hostile.root)
    assert hostile.content() == before


@pytest.mark.parametrize("name", FILES)
def test_a_hard_link_is_refused_before_a_write_goes_through_it(hostile: Hostile, name: str) -> None:
    path, target = hostile.root / name, hostile.outside / name.replace("/", "-")
    if not path.exists():
        path.write_bytes(b"")
    os.link(path, target)
    before = hostile.content()
    with pytest.raises((StorageError, OSError), match="hard links"):
        open_store(hostile.root).close()
    assert hostile.content() == before


def test_a_snapshot_by_hard_links_is_read_and_a_copy_of_it_is_opened(
    hostile: Hostile, tmp_path: Path
) -> None:
    snapshot = tmp_path / "snapshot"
    shutil.copytree(hostile.root, snapshot, copy_function=os.link)
    with StoreReader.open(snapshot, production_seams()) as reader:
        assert reader.format.store_id
    assert CliRunner().invoke(app, ["store", "verify", str(snapshot)]).exit_code in (0, 1)
    for root in (snapshot, hostile.root):
        with pytest.raises(StorageError, match="hard links"):
            open_store(root).close()
    shutil.copytree(snapshot, tmp_path / "copy")
    with open_store(tmp_path / "copy") as store:
        assert bodies(store) == all_bodies(500)
    shutil.rmtree(snapshot)
    with open_store(hostile.root) as store:
        assert bodies(store) == all_bodies(500)


def test_a_log_that_only_format_json_names_is_not_written(hostile: Hostile) -> None:
    log = hostile.outside / "log"
    log.mkdir()
    (log / "mine").write_text("x")
    path = hostile.root / "mqstore" / "format.json"
    content = json.loads(sealed_json.unseal(path.read_bytes()))
    content["storePathCommitLog"] = str(log)
    path.write_bytes(sealed_json.seal(json.dumps(content)))
    shutil.rmtree(hostile.root / "commitlog")
    before = hostile.content()
    with pytest.raises(StorageError):
        open_store(hostile.root).close()
    assert hostile.content() == before


NAMELESS = re.compile("embedded null|set_int_max_str_digits|empty sequence|Traceback")
"""Texts of Python's own errors, which name no file and no remedy."""
CHANGES: list[tuple[str, str, str]] = [
    ("mqstore/format.json", "storePathCommitLog", '"/a\\u0000b"'),
    ("mqstore/format.json", "storePathCommitLog", '""'),
    ("mqstore/format.json", "settings", '{"messageDelayLevel": ""}'),
    ("mqstore/format.json", "settings", '{"deleteWhen": "%s"}' % ("1" * 5000)),
    ("mqstore/format.json", "epoch", "1" * 5000),
    ("mqstore/clean-close.json", "queues", '[{"topic": "a\\u0000", "queueId": 0}]'),
    ("config/topics.json", "dataVersion", "1" * 5000),
    ("config/consumerOffset.json", "offsetTable", "1" * 5000),
]
"""A file, a member of it and its value in JSON."""


@pytest.mark.parametrize("change", CHANGES)
def test_an_error_names_what_is_wrong(hostile: Hostile, change: tuple[str, str, str]) -> None:
    name, member, value = change
    path = hostile.root / name
    content = json.loads(sealed_json.unseal(path.read_bytes())) if path.exists() else {}
    text = json.dumps(content | {member: "VALUE"}).replace('"VALUE"', value)
    path.write_bytes(sealed_json.seal(text) if name.startswith("mqstore/") else text.encode())
    for command in ("verify", "info", "dump", "export"):
        done = CliRunner().invoke(app, ["store", command, str(hostile.root)])
        assert isinstance(done.exception, SystemExit | None), command
        assert not NAMELESS.search(done.output), command


@pytest.mark.parametrize("name", FILES)
def test_a_pipe_is_refused_and_blocks_nothing(hostile: Hostile, name: str) -> None:
    hostile.pipe(name)
    refuse(hostile.root)


def test_a_reader_refuses_links_and_pipes(hostile: Hostile) -> None:
    seams = production_seams()
    for change, name in ((hostile.link, "consumequeue/T"), (hostile.pipe, "config/topics.json")):
        change(name)
        with pytest.raises(StoreUnsupported, match=re.escape(name)):
            StoreReader.open(hostile.root, seams)
        (hostile.root / name).unlink()
    with StoreReader.open(hostile.root, seams) as reader:
        hostile.link(f"commitlog/{segment_name(0)}")
        with pytest.raises(OSError, match="symbolic link"):
            reader.log.select(0, 100)


@pytest.mark.parametrize(
    "name", [name for name in FILES if name.startswith(("config/", "mqstore/", "checkpoint"))]
)
def test_a_sparse_giant_is_refused_before_it_is_read(hostile: Hostile, name: str) -> None:
    with (hostile.root / name).open("ab") as file:
        file.truncate(GIANT)
    refuse(hostile.root)


def test_a_table_that_grew_beyond_its_bound_is_refused_at_run_time(hostile: Hostile) -> None:
    seams = production_seams()
    with open_store(hostile.root) as store:
        with (hostile.root / "config" / "topics.json").open("ab") as file:
            file.truncate(SMALL_FILE_MAX + 1)
        with pytest.raises(OSError, match="no file of its kind"):
            TopicTable.load(store.paths, store.format, seams)


@pytest.mark.parametrize("length", [GIANT, 2 << 30])
def test_giant_segments_queue_files_and_index_files_end_in_a_refusal_or_a_finding(
    hostile: Hostile, length: int
) -> None:
    for name in (
        f"commitlog/{segment_name(0)}",
        f"consumequeue/T/0/{segment_name(0)}",
        f"index/{next((hostile.root / 'index').iterdir()).name}",
    ):
        path = hostile.root / name
        before = path.stat().st_size
        with path.open("ab") as file:
            file.truncate(length)
        found = CliRunner().invoke(app, ["store", "verify", str(hostile.root)])
        assert found.exit_code in (1, 2), name
        with path.open("ab") as file:
            file.truncate(before)


def test_links_of_the_operator_to_root_and_log_are_followed(
    hostile: Hostile, tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to(hostile.root)
    with open_store(tmp_path / "link") as store:
        assert bodies(store) == all_bodies(500)
    (hostile.root / "commitlog").rename(tmp_path / "log")
    (tmp_path / "log-link").symlink_to(tmp_path / "log")
    with open_store(tmp_path / "link", store_path_commit_log=str(tmp_path / "log-link")) as store:
        assert bodies(store) == all_bodies(500)
    for command in ("verify", "dump"):
        done = CliRunner().invoke(app, ["store", command, str(tmp_path / "link")])
        assert done.exit_code == 0, command
    assert at_path.look(tmp_path / "link").segments


def test_links_beside_the_log_are_refused_and_nothing_is_changed_behind_them(
    hostile: Hostile, tmp_path: Path
) -> None:
    (hostile.root / "commitlog").rename(tmp_path / "log")
    for beside in ("log.mqstore", "log.mqstore-staging"):
        (tmp_path / beside).symlink_to(hostile.outside)
        before = hostile.content()
        with pytest.raises(DirectoryNotUsable, match="symbolic link"):
            open_store(hostile.root, store_path_commit_log=str(tmp_path / "log"))
        assert hostile.content() == before
        (tmp_path / beside).unlink()
    shutil.rmtree(tmp_path / "log.mqstore", ignore_errors=True)


def test_lost_and_found_of_a_volume_is_harmless(hostile: Hostile) -> None:
    lost = hostile.root / "lost+found"
    lost.mkdir(mode=0o700)
    (lost / "#12").symlink_to("/nowhere")
    with open_store(hostile.root) as store:
        assert bodies(store) == all_bodies(500)
    assert CliRunner().invoke(app, ["store", "verify", str(hostile.root)]).exit_code == 0
    assert StorePaths(hostile.root).lock.exists()
