"""The example of a producer with a database, as it stands, killed at each of its lines."""

from __future__ import annotations

import contextlib
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from mqstore.client import Client
from tests.services.service_processes import END_TIMEOUT_S, REPOSITORY, Run

SHOP: Final = REPOSITORY / "docs" / "examples" / "shop.py"
ENDLESS: Final = 1_000_000
pytestmark = [pytest.mark.xdist_group("coordinator"), pytest.mark.slow]


def booked(database: Path) -> set[str]:
    with contextlib.closing(sqlite3.connect(database)) as connection:
        rows = connection.execute("select number, goods from orders")
        return {f"order {number}: {goods}" for number, goods in rows}


def announced(client: Client) -> Counter[str]:
    """How often each message of the shop can be read."""
    found: Counter[str] = Counter()
    for queue in range(4):
        offset: int | None = 0
        while True:
            pull = client.pull("orders", queue, offset, max_messages=1_000)
            if not pull.messages:
                break
            found.update(message.body or "" for message in pull.messages)
            offset = pull.next
    return Counter({body: count for body, count in found.items() if body.startswith("order ")})


def kill_at(run: Run, database: Path, first: int, last: int) -> None:
    """The shop runs and is killed at one line after the other."""
    module = ["-m", "tests.services.dying_script", str(first), str(last)]
    shop = [str(SHOP), str(database), str(ENDLESS), "--coordinator-url", run.coordinator_url]
    subprocess.run(
        [sys.executable, *module, *shop],
        cwd=REPOSITORY,
        check=True,
        stdout=subprocess.DEVNULL,
        timeout=250,
    )


def come_to_an_end(run: Run, database: Path) -> None:
    """The shop runs once more: it books one more order, and answers for all others."""
    count = len(booked(database)) + 1
    arguments = [str(database), str(count), "--coordinator-url", run.coordinator_url]
    with subprocess.Popen(
        [sys.executable, str(SHOP), *arguments], stdout=subprocess.PIPE, text=True
    ) as shop:
        assert shop.stdout is not None
        lines = [shop.stdout.readline() for _ in range(count)]
        assert lines[-1] == f"order {count} is booked\n"
        with run.client() as client:
            while client.transactions(group="shop").transactions:
                assert shop.poll() is None
        shop.send_signal(signal.SIGINT)
        assert shop.wait(END_TIMEOUT_S) == 0


@pytest.mark.parametrize(
    "lines", [(33, 36), pytest.param((1, 75), marks=pytest.mark.nightly)], ids=["few", "all"]
)
def test_a_message_can_be_read_if_its_order_is_booked_and_never_otherwise(
    with_coordinator: Run, tmp_path: Path, lines: tuple[int, int]
) -> None:
    database = tmp_path / "shop.db"
    with with_coordinator.client() as client:
        before = announced(client)
        kill_at(with_coordinator, database, *lines)
        come_to_an_end(with_coordinator, database)
        assert announced(client) - before == dict.fromkeys(booked(database), 1)
