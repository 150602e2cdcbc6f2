"""`python -m tests.bench.busy readers|scan URL MESSAGES`: reads through query until killed."""

from __future__ import annotations

import os
import sys

import httpx

from tests.bench import readers
from tests.bench.workload import QUEUES

READERS = 8
NICENESS = 19
"""The lowest priority: readers stand for other machines, and get the time that services leave."""


def read(url: str, end: int) -> None:
    """Eight readers pull the queues from their first message to the offset ``end``."""
    queues = [number % QUEUES for number in range(READERS)]
    while True:
        readers.pull_all(url, queues, end, "max=32")


def scan(url: str) -> None:
    """The whole log, segment by segment."""
    with httpx.Client(base_url=url, timeout=60) as http:
        while True:
            for each in http.get("/v1/segments").json()["segments"]:
                with http.stream("GET", f"/v1/segments/{each['name']}") as answer:
                    for _ in answer.iter_raw():
                        pass


if __name__ == "__main__":
    os.nice(NICENESS)
    if sys.argv[1] == "readers":
        read(sys.argv[2], int(sys.argv[3]) // 64 * 64)
    else:
        scan(sys.argv[2])
