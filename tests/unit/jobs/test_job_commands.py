"""A job ends with one line and the exit code that DESIGN gives it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mqstore.jobs import command, errors
from mqstore.jobs.errors import (
    JavaMissing,
    JobError,
    NoStore,
    SegmentGone,
    Unreachable,
    job_error_in,
)
from mqstore.jobs.session import check_java


def ended(error: Exception) -> int:
    def job() -> None:
        raise error

    return command.run(job)


@pytest.mark.parametrize(
    ("error", "code"), [(NoStore("x is gone"), 2), (Unreachable("x is gone"), 3)]
)
def test_an_error_of_ours_is_one_line(
    error: JobError, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended(error) == code
    assert capsys.readouterr() == ("", "mqstore: x is gone\n")


def test_an_unknown_variable_ends_a_job_before_it_begins(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MQSTORE_TOKEN_FLE", "/run/token")
    assert ended(AssertionError("it began")) == 2
    assert "unknown variable MQSTORE_TOKEN_FLE (did you mean MQSTORE_TOKEN_FILE?)" in (
        capsys.readouterr().err
    )


def test_an_error_that_spark_passed_on_as_text_is_found_in_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = (
        "Job aborted due to stage failure\nTraceback (most recent call last):\n"
        '  File "at_url.py", line 1, in read\n    raise error\n'
        "mqstore.jobs.errors.Unreachable: http://h does not answer\n\tat org.apache.spark"
    )
    assert ended(RuntimeError(text)) == 3
    assert capsys.readouterr().err == "mqstore: http://h does not answer\n"


def test_a_defect_is_no_finding_and_the_log_has_it_whole(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    assert ended(ZeroDivisionError("x")) == 2
    assert capsys.readouterr().err.endswith("mqstore: ZeroDivisionError: x\n")
    assert "Traceback" in caplog.text


def test_a_terminated_job_releases_what_it_holds() -> None:
    code = (
        "import os, signal, threading; from mqstore.jobs import command\n"
        "def job():\n"
        "    try: os.kill(os.getpid(), signal.SIGTERM); threading.Event().wait(60)\n"
        "    finally: print('given up')\n"
        "raise SystemExit(command.run(job))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (143, "given up\n", "")


def test_the_cause_of_a_failed_task_is_taken_from_sparks_text(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = (
        "An exception was thrown from the Python worker:\nTraceback (most recent call last):\n"
        '  File "worker.py", line 1, in process\nOSError: [Errno 28] No space left on device\n'
    )
    assert ended(RuntimeError(text)) == 2
    said = "mqstore: RuntimeError: OSError: [Errno 28] No space left on device\n"
    assert capsys.readouterr().err.endswith(said)


def test_without_pyspark_a_job_says_in_one_line_what_to_install(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)

    def job() -> None:
        import pyspark.sql

        assert not pyspark

    assert command.run(job) == 2
    said = "mqstore: pyspark is not installed: pip install 'mqstore-jobs[spark]' (some 500 MB)\n"
    assert capsys.readouterr().err == said


def test_the_exit_code_of_a_job_is_its_own() -> None:
    assert command.run(lambda: None) == 0
    assert command.run(lambda: 1) == 1


def test_every_error_is_found_again_by_its_name() -> None:
    for kind in JobError.__subclasses__():
        assert type(job_error_in(f"{errors.__name__}.{kind.__name__}: why")) is kind
    assert job_error_in("nothing of ours") is None


def java_saying(directory: Path, version: str) -> dict[str, str]:
    java = directory / "java"
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    java.chmod(0o755)
    return {"PATH": str(directory)}


@pytest.mark.parametrize("version", ["17.0.15", "21"])
def test_a_java_of_17_or_newer_will_do(tmp_path: Path, version: str) -> None:
    check_java(java_saying(tmp_path, version))


@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.2"])
def test_an_older_java_is_refused(tmp_path: Path, version: str) -> None:
    with pytest.raises(JavaMissing, match="install a Java runtime, 17 or newer"):
        check_java(java_saying(tmp_path, version))


def test_a_java_home_without_java_is_named(tmp_path: Path) -> None:
    with pytest.raises(JavaMissing, match=f"no java in JAVA_HOME {tmp_path}"):
        check_java({"JAVA_HOME": str(tmp_path), "PATH": "/usr/bin"})


def test_without_java_a_job_says_in_one_line_what_to_install(tmp_path: Path) -> None:
    code = (
        "import sys; from mqstore.jobs import command; from mqstore.jobs.session import check_java;"
        "sys.exit(command.run(check_java))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code],
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 2
    assert ran.stderr.count("\n") == 1
    assert "openjdk-17-jre-headless" in ran.stderr
    assert SegmentGone.exit_code == ran.returncode
