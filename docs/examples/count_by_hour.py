"""Messages by topic and hour, counted with Spark over a store directory or a running shard.

With ``make test-ci`` or ``pip install -e spark-jobs[spark]`` done once, and a Java of 17 or newer::

    .venv/bin/python docs/examples/count_by_hour.py data/store
    .venv/bin/python docs/examples/count_by_hour.py http://127.0.0.1:8082

Only the two columns that are named are decoded. If the store cannot be read, the command prints the
reason in one line and ends with exit code 2, or 3 if a service does not reply.
"""

from __future__ import annotations

import argparse
import sys

from pyspark.sql import DataFrame, functions

from mqstore.jobs import command
from mqstore.jobs.commitlog import commitlog
from mqstore.jobs.session import spark_session


def count_by_hour(messages: DataFrame) -> DataFrame:
    hour = functions.date_trunc("hour", "store_time").alias("hour")
    return messages.groupBy("topic", hour).count().orderBy("topic", "hour")


def main() -> None:
    arguments = argparse.ArgumentParser(description="Count messages by topic and hour.")
    arguments.add_argument("log", help="store directory, or the address of a shard's query service")
    where = arguments.parse_args().log
    messages = commitlog(spark_session("count-by-hour"), where, columns=["topic", "store_time"])
    count_by_hour(messages).show(truncate=False)


if __name__ == "__main__":
    sys.exit(command.run(main))
