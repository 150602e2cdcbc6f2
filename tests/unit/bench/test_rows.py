"""Every row runs, with few records and one round: what is measured stays measurable."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.bench import rocketmq
from tests.bench.__main__ import BENCHES, main
from tests.bench.failures import SideError
from tests.bench.harness import Bench, Figures, Metric, Setting
from tests.long_runs import few_first

pytestmark = pytest.mark.slow

SMALL = ["--rounds", "1", "--records", "1000", "--log-mib", "1"]
FEW = ["--exchanges", "5", "--seconds", "0"]


def run(tmp_path: Path, *arguments: str) -> list[dict[str, object]]:
    output = tmp_path / "bench.json"
    done = main([*SMALL, *arguments, "--directory", str(tmp_path), "--output", str(output)])
    assert done == 0
    rows: list[dict[str, object]] = json.loads(output.read_text())["rows"]
    return rows


def test_ours_alone_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = run(tmp_path, "append", "--alone")
    assert "mqstore alone: requested by --alone" in capsys.readouterr().out
    assert all(row["peer"] is None and row["ours"] for row in rows)


@pytest.mark.parametrize(
    "name", few_first(["query", "sync", "rebuild", "reads"], 2, pytest.mark.nightly)
)
def test_each_row_of_the_engine_measures_ours(name: str, tmp_path: Path) -> None:
    assert all(row["ours"] for row in run(tmp_path, name, "--alone"))


@pytest.mark.parametrize(
    "name",
    few_first(
        ["client", "network", "transactions", "open", "visible", "pulls", "beside"],
        1,
        pytest.mark.nightly,
    ),
)
def test_each_row_that_takes_longer_measures_ours(name: str, tmp_path: Path) -> None:
    assert all(row["ours"] for row in run(tmp_path, name, "--alone"))


@pytest.mark.parametrize(
    "name",
    few_first(
        [
            "lean-lookups",
            "lean-transactions",
            "lean-coordinator",
            "lean-shared",
            "lean-pulls",
            "lean-push",
            "lean-sends",
        ],
        2,
        pytest.mark.nightly,
    ),
)
def test_each_row_of_the_lean_client_counts_its_messages(name: str, tmp_path: Path) -> None:
    rows = run(tmp_path, name, "--alone", *FEW)
    assert all(row["ours"] for row in rows)


def test_a_failed_row_is_named_and_leaves_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def benches(_: Setting) -> Iterator[Bench]:
        yield Bench([Metric("rate", "broken", "messages/s")], fail)
        yield Bench([Metric("rate", "whole", "messages/s")], lambda: {"rate": 1.0})

    def fail() -> Figures:
        raise SideError("connection 0: the server closed it")

    monkeypatch.setitem(BENCHES, "append", benches)
    output = tmp_path / "bench.json"
    place = ["--directory", str(tmp_path), "--output", str(output)]
    assert main(["append", "--alone", *SMALL, *place]) == 1
    assert "failed: broken: ours: connection 0: the server closed it" in capsys.readouterr().err
    names = [row["name"] for row in json.loads(output.read_text())["rows"]]
    assert names == ["whole", "whole, peak private memory"]


def test_a_page_without_markers_is_refused_before_the_run(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Benchmarks")
    with pytest.raises(ValueError, match="has no lines"):
        main(["--document", str(page), "--alone"])


def test_a_document_holds_only_whole_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["append", "--document", "page.md"]) == 2
    assert "leave ROW out" in capsys.readouterr().err


@pytest.mark.nightly
def test_the_rebuild_by_spark_is_measured(tmp_path: Path) -> None:
    rows = run(tmp_path, "index-rebuild", "--alone")
    assert len(rows) == 18
    assert all(row["ours"] for row in rows)


@pytest.mark.slow
def test_the_first_copy_of_a_follower_is_measured_beside_the_disk(tmp_path: Path) -> None:
    (rate, cost) = run(tmp_path, "catch-up", "--alone", "--log-mib", "8", "--rounds", "1")
    assert rate["ours"] and rate["disk"] and cost["ours"]


@pytest.mark.nightly
def test_reports_and_archives_by_spark_are_measured_beside_the_disk(tmp_path: Path) -> None:
    rows = run(tmp_path, "jobs", "--alone", "--log-mib", "130")  # an archive takes whole segments
    assert len(rows) == 6
    assert all(row["ours"] for row in rows)
    assert [bool(row["disk"]) for row in rows] == [True, False, False] * 2


@pytest.mark.nightly
@pytest.mark.referee
@pytest.mark.skipif(rocketmq.missing() is not None, reason=str(rocketmq.missing()))
@pytest.mark.parametrize(
    "names",
    [
        ("sync", "query"),
        tuple(BENCHES.keys() - {"beside", "catch-up", "index-rebuild", "jobs"}),
    ],
    ids=["some", "all"],
)
def test_real_rocketmq_is_measured_in_the_same_run(names: Sequence[str], tmp_path: Path) -> None:
    rows = run(tmp_path, *names, *FEW)
    ours_only = ("callback", "query ready", "visible after ack")
    with_peer = [row for row in rows if not any(each in str(row["name"]) for each in ours_only)]
    assert all(row["ours"] for row in with_peer)
    # Java's clock of its processor time goes in steps of 10 ms: a short round may cost nothing.
    costs = [row for row in with_peer if str(row["name"]).endswith(", cost")]
    assert all(row["peer"] is not None and row["ratio"] is not None for row in costs)
    assert all(row["peer"] and row["ratio"] for row in with_peer if row not in costs)


def test_an_unknown_row_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nothing"]) == 2
    assert "known are lean-sends, lean-replicated" in capsys.readouterr().err
