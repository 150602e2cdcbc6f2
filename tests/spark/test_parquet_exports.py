"""Messages of a store as Parquet, here because pyarrow comes with Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pyarrow import parquet
from typer.testing import CliRunner

from mqstore.cli.main import app
from tests.unit.cli.test_export_and_import import PLACE
from tests.unit.storage.stores import CONFIG, open_store, put_some

SIZES = (f"--hash-slots={CONFIG.max_hash_slot_num}", f"--index-num={CONFIG.max_index_num}")


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["store", *arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def kept(root: Path) -> list[dict[str, Any]]:
    """The fields of each message that an import keeps."""
    documents = [json.loads(line) for line in run("export", str(root)).splitlines()]
    return [{k: v for k, v in each.items() if k not in PLACE} for each in documents]


def test_a_round_trip_through_parquet_is_that_through_json_lines(tmp_path: Path) -> None:
    first, file = tmp_path / "first", tmp_path / "all.parquet"
    with open_store(first) as store:
        put_some(store, 1_200)

    run("export", str(first), "--to", str(file))
    run("import", str(tmp_path / "second"), str(file), "--create", "4.9", *SIZES)

    table = parquet.ParquetFile(file)
    assert (table.metadata.num_rows, table.num_row_groups) == (1_200, 2)
    assert kept(tmp_path / "second") == kept(first)


def test_bad_rows_are_named(tmp_path: Path) -> None:
    import pyarrow

    file = tmp_path / "bad.parquet"
    rows = [{"topic": "T", "body": b"x", "queueId": n} for n in (0, -1)]
    parquet.write_table(pyarrow.Table.from_pylist(rows), file)
    arguments = ["store", "import", str(tmp_path / "new"), str(file), "--create", "4.9"]

    result = CliRunner().invoke(app, arguments)

    assert result.exit_code == 2
    assert f"line 2 of {file}: queueId is -1" in result.stderr
    (tmp_path / "text.parquet").write_text("text")
    arguments[3] = str(tmp_path / "text.parquet")
    assert "is no Parquet" in CliRunner().invoke(app, arguments).stderr
