"""The log of running services, by address and by path, and what goes wrong on the way."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from mqstore.client import NewMessage
from mqstore.jobs.commitlog import commitlog
from mqstore.jobs.errors import AccessRefused, SegmentGone, job_error_in
from tests.compat.referee import FAST_START
from tests.services.service_processes import Run, running
from tests.unit.jobs.written import written

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("spark")]

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "count_by_hour.py"
COUNT = 600


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Run, Path]]:
    root = tmp_path_factory.mktemp("served") / "store"
    with running(root, mapped_file_size_commit_log=1 << 20) as run:
        with run.client() as client:
            client.create_topic("T")
        produce(run, COUNT)
        yield run, root


def produce(run: Run, count: int) -> None:
    with run.client() as client:
        for _ in range(count // 100):
            messages = [NewMessage(body="x" * 5000, tags="a", keys=("k",))] * 100
            client.produce("T", messages, durability="sync")


def test_by_address_and_by_path_the_same_is_found(
    spark: SparkSession, services: tuple[Run, Path]
) -> None:
    run, root = services
    columns = ["physical_offset", "topic", "queue_offset", "keys", "properties", "body", "segment"]
    by_url = commitlog(spark, run.query_url, columns=columns).orderBy("physical_offset").collect()
    by_path = commitlog(spark, str(root), columns=columns).orderBy("physical_offset").collect()
    assert len(by_url) == COUNT
    assert by_url == by_path
    assert len({row.segment for row in by_url}) > 2


def test_what_is_written_meanwhile_comes_with_the_next_look(
    spark: SparkSession, services: tuple[Run, Path]
) -> None:
    run, root = services
    before = commitlog(spark, str(root), columns=["physical_offset"])
    counted = before.count()
    produce(run, 200)
    assert before.count() in (counted, counted + 200)
    assert commitlog(spark, str(root)).count() == counted + 200
    assert commitlog(spark, run.query_url).count() == counted + 200


def test_a_segment_that_was_deleted_before_its_task_fails_the_job_with_the_reason(
    spark: SparkSession, tmp_path: Path
) -> None:
    root = written(tmp_path / "store", 500)
    messages = commitlog(spark, str(root), columns=["physical_offset"])
    plan = messages.rdd  # planned now, read below
    assert plan.getNumPartitions() > 1
    (root / "commitlog" / f"{0:020d}").unlink()
    with pytest.raises(Exception, match="SegmentGone") as caught:
        plan.count()
    found = job_error_in(str(caught.value))
    assert isinstance(found, SegmentGone)
    assert str(found).startswith("segment 00000000000000000000 was deleted while it was read")


def example(*arguments: str, **environment: str) -> tuple[int, str]:
    ran = subprocess.run(
        [sys.executable, str(EXAMPLE), *arguments],
        env={**os.environ, "JDK_JAVA_OPTIONS": " ".join(FAST_START), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    return ran.returncode, ran.stderr


def test_a_job_over_nothing_ends_with_two_and_one_line_of_ours(tmp_path: Path) -> None:
    code, errors = example(str(tmp_path / "nowhere"), SPARK_LOCAL_IP="127.0.0.1")
    assert code == 2
    ours = [line for line in errors.splitlines() if line.startswith("mqstore:")]
    assert ours == [f"mqstore: {tmp_path}/nowhere is no directory; name a store directory"]
    assert "Traceback" not in errors


def test_the_example_says_how_it_is_called() -> None:
    code, errors = example()
    assert code == 2
    assert "usage: count_by_hour.py" in errors


def test_a_job_without_a_reply_ends_with_three() -> None:
    code, errors = example("http://127.0.0.1:9", SPARK_LOCAL_IP="127.0.0.1")
    assert code == 3
    assert "mqstore: http://127.0.0.1:9 does not answer" in errors
    assert "Traceback" not in errors


def test_wrong_credentials_are_reported_before_anything_runs(
    spark: SparkSession, tmp_path: Path
) -> None:
    token, given = "c" * 32, tmp_path / "token"
    with running(tmp_path / "store", token_consume=token) as run:
        given.write_text("wrong")
        with pytest.raises(AccessRefused, match="refuses the credentials"):
            commitlog(spark, run.query_url, token_file=str(given))
        given.write_text(token)
        assert commitlog(spark, run.query_url, token_file=str(given)).count() == 0
