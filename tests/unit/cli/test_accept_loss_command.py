"""``mqstore store accept-loss``: its lines, text and exit codes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from mqstore.storage.errors import DataMissing
from tests.unit.cli.store_commands import invoke_for_json, lines_of
from tests.unit.storage.stores import open_store, put_some

COUNT = 900


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Without its last segment."""
    path = tmp_path / "store"
    with open_store(path) as store:
        put_some(store, COUNT)
    lost = [each for each in sorted((path / "commitlog").iterdir()) if any(each.read_bytes()[:8])]
    lost[-1].unlink()
    return path


def test_a_dry_run_names_what_is_lost_and_accepts_nothing(root: Path) -> None:
    result = invoke_for_json("accept-loss", root, "--dry-run")
    assert result.exit_code == 0
    lines = lines_of(result)
    assert [line["t"] for line in lines] == ["loss", *["lost"] * 3, *["mark"] * 3, "planned"]
    assert {line["to"] for line in lines if line["t"] == "lost"} == {COUNT // 3}
    assert {line["qoff"] for line in lines if line["t"] == "mark"} == {COUNT // 3}
    assert lines[-1]["resumeAt"] >= lines[0]["watermark"]
    with pytest.raises(DataMissing):
        open_store(root)


def test_text_says_the_same_and_how_to_accept(root: Path) -> None:
    planned = lines_of(invoke_for_json("accept-loss", root, "--dry-run"))[-1]
    text = invoke_for_json("accept-loss", root, "--dry-run", "-o", "table").stdout
    assert "below its durable watermark" in text
    assert (
        f"queue offsets {lines_of(invoke_for_json('accept-loss', root, '--dry-run'))[1]['from']} to"
        in text
    )
    assert text.endswith(f"--confirm {planned['confirm']}\n")


def test_the_confirmed_loss_is_accepted_and_no_other(root: Path) -> None:
    planned = lines_of(invoke_for_json("accept-loss", root, "--dry-run"))[-1]
    refused = invoke_for_json("accept-loss", root, "--confirm", "0-1-1")
    assert refused.exit_code == 2
    assert planned["confirm"] in refused.stderr
    assert invoke_for_json("accept-loss", root, "--confirm", planned["confirm"]).exit_code == 0
    with open_store(root) as store:
        assert store.read_only_reason is None
    assert invoke_for_json("accept-loss", root, "--dry-run").exit_code == 2


@pytest.mark.parametrize("options", [[], ["--dry-run", "--confirm", "0-1-1"]])
def test_either_a_dry_run_or_a_confirmation_is_needed(root: Path, options: list[str]) -> None:
    assert invoke_for_json("accept-loss", root, *options).exit_code == 2


def without_us_and_log(root: Path) -> None:
    """As a broker's store whose log is on another volume."""
    shutil.rmtree(root / "mqstore")
    shutil.rmtree(root / "commitlog")
    (root / "lock").write_bytes(b"lock")


def test_a_broker_s_log_that_is_gone_needs_its_segment_size(root: Path) -> None:
    without_us_and_log(root)
    refused = invoke_for_json("accept-loss", root, "--dry-run")
    assert refused.exit_code == 2
    assert "--segment-size BYTES" in refused.stderr

    size = ("--segment-size", str(1 << 20))
    assert (
        lines_of(invoke_for_json("accept-loss", root, "--dry-run", *size))[-1]["resumeAt"]
        == 1 << 20
    )
    text = invoke_for_json("accept-loss", root, "--dry-run", *size, "-o", "table").stdout
    assert f" --segment-size {1 << 20} --confirm " in text
    assert invoke_for_json("accept-loss", root, *size, "--confirm", text.split()[-1]).exit_code == 0


def test_the_directory_of_a_broker_s_log_is_an_option(root: Path) -> None:
    log = root.parent / "log"
    (root / "commitlog").rename(log)
    (root / "commitlog").mkdir()
    without_us_and_log(root)
    found = invoke_for_json(
        "accept-loss", root, "--dry-run", "--commit-log", str(log), "-o", "table"
    )
    assert found.exit_code == 0
    assert f"the log in {log} ends at" in found.stdout
    assert f" --commit-log {log} --confirm " in found.stdout
