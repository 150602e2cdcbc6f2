"""A run over several shards: one summary, the worst exit code, and no shard waits for another."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mqstore.jobs import job_run
from mqstore.jobs.errors import NoStore, Unreachable
from mqstore.jobs.job_run import JobRun, Outcome
from mqstore.jobs.progress import LoggedProgress
from mqstore.jobs.spark_figures import SparkFigures, watched
from mqstore.storage.errors import StoreLocked


def work(run: JobRun, shard: str) -> Outcome:
    match shard:
        case "nowhere":
            raise NoStore("nowhere is no directory")
        case "busy":
            raise StoreLocked("busy is in use")
        case "silent":
            raise Unreachable("silent does not answer")
        case "full":
            return Outcome({"at": "risk"}, exit_code=1, log_bytes=5)
    return Outcome({"messages": 3}, log_bytes=10)


def summary_of(
    shards: list[str], capsys: pytest.CaptureFixture[str]
) -> tuple[int, dict[str, object]]:
    code = JobRun("counting").over(shards, work)
    return code, json.loads(capsys.readouterr().out)


def test_one_shard_that_fails_is_reported_and_the_rest_finish(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, summary = summary_of(["nowhere", "good", "full", "busy"], capsys)
    assert code == summary["exitCode"] == 2
    reports = summary["shards"]
    assert isinstance(reports, list)
    for each in reports:
        assert each.pop("seconds") >= 0
    assert reports == [
        {"shard": "nowhere", "exitCode": 2, "error": "nowhere is no directory"},
        {"shard": "good", "exitCode": 0, "messages": 3},
        {"shard": "full", "exitCode": 1, "at": "risk"},
        {"shard": "busy", "exitCode": 2, "error": "busy is in use"},
    ]
    assert (summary["job"], summary["bytes"], summary["spark"]) == ("counting", 15, None)


@pytest.mark.parametrize(
    ("shards", "code"), [(["good"], 0), (["good", "full"], 1), (["full", "silent", "busy"], 3)]
)
def test_the_worst_exit_code_is_the_runs(
    shards: list[str], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert summary_of(shards, capsys)[0] == code


def test_a_defect_is_reported_as_such_and_the_rest_finish(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    code = JobRun("counting").over(["0", "2"], lambda run, shard: Outcome({"n": 6 // int(shard)}))
    first, second = json.loads(capsys.readouterr().out)["shards"]
    assert code == first["exitCode"] == 2
    assert first["error"].startswith("ZeroDivisionError: ")
    assert second["n"] == 3
    assert "Traceback" in caplog.text


def test_where_sparks_java_was_killed_the_summary_is_still_printed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Dead:
        def stop(self) -> None:
            raise ConnectionRefusedError

    monkeypatch.setattr(job_run, "spark_session", lambda name, **_: Dead())
    code = JobRun("counting").over(["x"], lambda run, shard: Outcome({"n": str(run.spark)}))
    assert code == json.loads(capsys.readouterr().out)["exitCode"] == 0


def test_the_cause_of_a_failed_stage_is_reported_also_without_spark() -> None:
    class Gone:
        def setJobGroup(self, group: str, what: str) -> None:  # noqa: N802  # Spark's name
            pass

        def __getattr__(self, name: str) -> Any:
            raise ConnectionRefusedError

    spark: Any = SimpleNamespace(sparkContext=Gone())
    with (
        pytest.raises(KeyError, match="why"),
        watched(spark, "counting", "a stage", lambda *_: None, SparkFigures()),
    ):
        raise KeyError("why")


def test_a_missing_file_is_a_refusal_and_no_defect(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def reads(run: JobRun, shard: str) -> Outcome:
        return Outcome({"text": Path(shard).read_text()})

    assert JobRun("counting").over([str(tmp_path / "x")], reads) == 2


def test_without_a_terminal_a_stage_is_printed_at_its_begin_and_end_and_now_and_then(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    times = iter([0.0, 1.0, 11.0, 11.0, 12.0, 13.0])
    progress = LoggedProgress(lambda: next(times))
    for done in range(5):
        progress("reading", done, 4)
    assert [record.getMessage() for record in caplog.records] == [
        "reading: 0 of 4",
        "reading: 2 of 4",
        "reading: 4 of 4",
    ]


def test_a_stage_that_reports_its_end_again_is_printed_now_and_then(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    times = iter([0.0, 1.0, 2.0, 3.0, 10.0, 10.0])
    progress = LoggedProgress(lambda: next(times))
    for _ in range(5):
        progress("counting", 0, 0)  # Spark has not planned its tasks yet
    assert [record.getMessage() for record in caplog.records] == [
        "counting: Spark plans its tasks"
    ] * 2


@pytest.mark.parametrize(
    ("code", "why"), [(137, "was killed, mostly for lack of memory"), (1, "ended with 1")]
)
def test_the_end_of_sparks_java_is_named(
    code: int, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    context = SimpleNamespace(_gateway=SimpleNamespace(proc=SimpleNamespace(poll=lambda: code)))
    ended: Any = SimpleNamespace(sparkContext=context)

    def fails(run: JobRun, shard: str) -> Outcome:
        raise ConnectionRefusedError(111, "Connection refused")

    assert JobRun("counting", ended).over(["x"], fails) == 2
    (shard,) = json.loads(capsys.readouterr().out)["shards"]
    assert why in shard["error"] and "jobs.driver.resources.limits.memory" in shard["error"]
