"""``mqstore store info``: what it shows of stores in different states, and its exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mqstore.cli.info_lines import COLUMNS
from mqstore.storage.admin.group_offsets import Commit
from mqstore.storage.message_import import ImportNote
from mqstore.storage.metadata import sealed_json
from mqstore.storage.metadata.epochs import Epochs
from mqstore.storage.metadata.log_history import Epoch
from mqstore.storage.metadata.quarantine import Quarantine
from mqstore.storage.paths import StorePaths, segment_name
from mqstore.storage.system.threads import production_seams
from tests.unit.cli.store_commands import invoke
from tests.unit.storage.stores import CONFIG, FILES, abandon, open_store, put_some
from tests.unit.untouched import STORES

RECORDS = 900


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "store"
    with open_store(path) as store:
        store.create_topic("T", queues=3)
        put_some(store, RECORDS)
        store.offsets.commit("g", [Commit("T", 0, 5)])
        store.wait_for_index()
    return path


def shown(root: Path, *, code: int = 0) -> dict[str, Any]:
    result = invoke("info", root, "-o", "json")
    assert result.exit_code == code, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_a_closed_store_is_shown_with_its_bounds_and_counts(root: Path) -> None:
    found = shown(root)

    with open_store(root, services=False) as store:
        end, first = store.log.max_offset, store.log.record_at(0).store_timestamp_ms
        store_id = store.store_id
    assert (found["storeId"], found["shard"], found["format"]) == (store_id, "0", "4.9")
    assert (found["left"], found["leftByBroker"], found["problems"]) == ("closed", False, [])
    log = found["log"]
    assert (log["minOffset"], log["maxOffset"], log["durableOffset"]) == (0, end, end)
    assert (log["segments"], log["segmentSize"], log["bytes"]) == (4, 64 << 10, end)
    assert log["firstMs"] == first <= log["lastMs"] <= found["leftMs"]
    assert found["tables"] == {"topics": 1, "groups": 1}
    assert (found["derived"]["queues"], found["derived"]["queueFiles"]) == (3, 9)
    assert found["derived"]["indexComplete"] is True
    assert found["checkpoint"]["physicMs"] == log["lastMs"]
    assert (found["holds"], found["unfinished"], found["epochs"]) == ([], [], [])


def test_the_table_is_one_screen_and_leaves_out_what_there_is_not(root: Path) -> None:
    result = invoke("info", root)

    names = [line.partition(":")[0] for line in result.stdout.splitlines()]
    assert names == [each.heading for each in COLUMNS if each.heading in names]
    assert {"format", "state", "offsets", "times", "topics", "checkpoint"} <= set(names)
    assert not {"epochs", "follows", "problems", "unfinished"} & set(names)
    assert len(names) <= 24


def test_a_store_that_its_writer_has_open_is_shown_beside_it(root: Path) -> None:
    with open_store(root) as store:
        put_some(store, 100, start=RECORDS)
        found = shown(root)
        assert (found["left"], found["leftMs"]) == ("open", None)
        assert found["log"]["maxOffset"] == store.log.max_offset
        assert found["owner"]["pid"] > 0


def test_a_crash_is_no_close(root: Path) -> None:
    abandon(open_store(root))
    found = shown(root)
    assert (found["left"], found["openings"]) == ("crashed", 2)
    assert found["leftMs"] == found["log"]["lastMs"]


@pytest.mark.parametrize(
    ("state", "left"), [("a broker's", "closed"), ("a broker's, killed, without lock", "crashed")]
)
def test_a_store_of_a_broker_is_shown_although_mqstore_never_opened_it(
    tmp_path: Path, state: str, left: str
) -> None:
    root = tmp_path / "store"
    STORES[state](root)
    found = shown(root)
    assert (found["left"], found["leftByBroker"], found["storeId"]) == (left, True, None)
    assert found["log"]["maxOffset"] > found["log"]["minOffset"] == 0
    assert "mqstore has never opened it" in invoke("info", root).stdout


def _import(paths: StorePaths) -> None:
    text = ImportNote(source="orders.jsonl", start=5).model_dump_json(by_alias=True)
    paths.import_note.write_bytes(sealed_json.seal(text))


def _staged(paths: StorePaths) -> None:
    paths.index_staging.mkdir()
    (paths.index_staging / "part").write_bytes(b"x")


def _lost_index(paths: StorePaths) -> None:
    paths.index_lost.write_text('{"files": []}')


@pytest.mark.parametrize(
    ("leave", "named"),
    [(_import, "an import"), (_staged, "mqstore/index-rebuild"), (_lost_index, "lost index files")],
)
def test_interrupted_work_is_named(
    root: Path, leave: Callable[[StorePaths], None], named: str
) -> None:
    leave(StorePaths(root))
    found = shown(root)
    assert len(found["unfinished"]) == 1
    assert named in found["unfinished"][0]
    assert "unfinished:" in invoke("info", root).stdout


def test_epochs_and_quarantine_are_counted(root: Path) -> None:
    paths, seams = StorePaths(root), production_seams()
    epochs = Epochs.load(FILES, paths, None)
    epochs.begin(3, 4_000, 0, "leader-of-3")
    Quarantine(FILES, seams.clock, paths.quarantine, root).keep_range(
        paths.checkpoint, 0, 100, "for a test"
    )

    found = shown(root)

    assert found["epochs"][-1] == {"number": 3, "start": 4_000, "leader": "leader-of-3"}
    assert found["epochs"][0]["number"] == Epoch(0, 0).number
    assert (found["quarantine"]["entries"], found["quarantine"]["bytes"]) == (1, 100)
    assert "led by store leader-of-3" in invoke("info", root).stdout


def test_a_store_that_would_open_read_only_says_why_with_exit_code_1(root: Path) -> None:
    (root / "commitlog" / segment_name(CONFIG.mapped_file_size_commit_log)).unlink()
    found = shown(root, code=1)
    assert "durable bytes are missing" in found["problems"][0]


def test_a_file_that_cannot_be_read_is_a_problem_and_the_rest_is_shown(root: Path) -> None:
    for name in ("topics.json", "topics.json.bak"):
        (root / "config" / name).write_text("{")
    found = shown(root, code=1)
    assert "topics.json" in found["problems"][0]
    assert found["tables"] == {"topics": None, "groups": 1}


def test_what_is_no_store_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing"):
        result = invoke("info", path)
        assert result.exit_code == 2
        assert len(result.stderr.splitlines()) == 1
