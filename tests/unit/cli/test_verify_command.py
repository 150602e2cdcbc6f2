"""``mqstore store verify``: its lines, columns and exit codes."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from mqstore.cli.main import app
from mqstore.storage.paths import segment_name
from tests.unit.cli.store_commands import invoke_for_json, lines_of
from tests.unit.storage.stores import open_store, put_some


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "store"
    with open_store(path) as store:
        put_some(store, 30)
    return path


def damage(root: Path) -> None:
    with (root / "commitlog" / segment_name(0)).open("r+b") as file:
        file.seek(100)
        file.write(b"\xff")


def test_a_whole_store_is_one_summary_line_and_exit_code_0(root: Path) -> None:
    result = invoke_for_json("verify", root)

    assert result.exit_code == 0
    (summary,) = lines_of(result)
    assert summary == {
        "t": "verified",
        "segments": 1,
        "logBytes": summary["logBytes"],
        "records": 30,
        "queues": 3,
        "entries": 30,
        "indexFiles": 1,
        "indexItems": 60,
        "findings": 0,
        "notes": 0,
        "brokerStarts": True,
        "brokerMaxOffset": summary["logBytes"],
    }


def test_a_finding_is_a_line_of_its_own_and_exit_code_1(root: Path) -> None:
    damage(root)

    result = invoke_for_json("verify", root)

    assert result.exit_code == 1
    finding, close, summary = lines_of(result)
    assert close["file"] == "mqstore/clean-close.json"
    assert {name: finding[name] for name in ("t", "level", "kind", "file", "offset", "phys")} == {
        "t": "finding",
        "level": "finding",
        "kind": "record-body",
        "file": f"commitlog/{segment_name(0)}",
        "offset": 0,
        "phys": 0,
    }
    assert (finding["topic"], finding["q"], finding["i"]) == ("T", 0, 0)
    assert finding["what"]
    assert finding["broker"].startswith("cuts the log")
    assert (summary["findings"], summary["notes"]) == (2, 0)


def test_notes_alone_are_exit_code_0(root: Path) -> None:
    (root / "strange").touch()

    result = invoke_for_json("verify", root)

    assert result.exit_code == 0
    assert [line.get("level") for line in lines_of(result)] == ["note", None]


def test_columns_for_a_terminal_say_the_same(root: Path) -> None:
    damage(root)

    result = invoke_for_json("verify", root, "-o", "table")

    assert result.exit_code == 1
    first, what, broker, *close, summary = result.stdout.splitlines()
    assert "clean-close.json" in close[0]
    assert first.split() == [
        "finding",
        "record-body",
        f"commitlog/{segment_name(0)}:0",
        "T/0",
        "#0",
    ]
    assert "body crc mismatch" in what
    assert broker.strip().startswith("a broker: cuts the log")
    assert "2 findings, 0 notes" in summary
    assert summary.endswith("a broker would start, its log ending at offset 0")


def test_what_is_no_store_is_exit_code_2(tmp_path: Path) -> None:
    result = invoke_for_json("verify", tmp_path)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "no store" in result.stderr
    as_text = invoke_for_json("verify", tmp_path / "missing", "-o", "table")
    assert as_text.exit_code == 2
    assert "no directory" in as_text.stderr


def test_csv_and_yaml_have_the_findings_too(root: Path) -> None:
    damage(root)
    heading, finding, _ = invoke_for_json("verify", root, "-o", "csv").stdout.splitlines()
    assert heading == "level,kind,file,offset,phys,topic,q,i,what,broker"
    assert finding.startswith(f"finding,record-body,commitlog/{segment_name(0)},0,0,T,0,0,")
    found = yaml.safe_load(invoke_for_json("verify", root, "-o", "yaml").stdout)
    assert [each["t"] for each in found] == ["finding", "finding", "verified"]


def test_wrong_usage_is_exit_code_2() -> None:
    assert CliRunner().invoke(app, ["store", "verify"]).exit_code == 2
    assert invoke_for_json("verify", Path("x"), "--index-num", "1").exit_code == 2
