"""One Spark session for all tests of a process, over stores that tests write."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.compat.referee import FAST_START

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# All of them are slow; make test, which has no Spark, would not even be able to import them.
if importlib.util.find_spec("pyspark") is None:
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    from mqstore.jobs.session import spark_session

    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = spark_session(
        "tests",
        spark_master="local[2]",
        spark_ui_enabled="false",
        spark_driver_memory="1g",
        spark_driver_extraJavaOptions=" ".join(FAST_START),
        spark_sql_shuffle_partitions="2",
        spark_local_dir=str(tmp_path_factory.mktemp("spark")),
        spark_sql_session_timeZone="UTC",
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
