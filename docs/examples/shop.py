"""A shop that books each order in its database and announces it in a message: both, or neither.

Beside a running mqstore (``make run``) with a topic ``orders``::

    .venv/bin/python docs/examples/shop.py shop.db 10       # books ten orders; Ctrl-C ends it

Kill it at any point and start it again: an order's message can be read if the order is in
``shop.db``, and never otherwise. It takes three steps:

1. ``begin`` stores the message where no consumer sees it.
2. One transaction of the database holds both the order and what becomes of its message.
3. ``commit`` makes the message visible.

If the shop is killed in between, the coordinator checks the transaction with a producer of its
group (``take_checks``), which reads the decision from the database. If there is none yet, the
producer stores "rollback", so that a step 2 that comes late fails.
"""

from __future__ import annotations

import argparse
import contextlib
import sqlite3
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any, TypeVar

from mqstore.client import COORDINATOR_URL, Client, NewMessage, ProblemError, Unreachable

GROUP = "shop"
TOPIC = "orders"
TABLES = """
create table if not exists orders (number integer primary key, goods text not null);
create table if not exists outcomes (transaction_id text primary key, decision text not null);
"""
T = TypeVar("T")


def opened(path: str) -> contextlib.closing[sqlite3.Connection]:
    """The shop's database, for one thread."""
    database = sqlite3.connect(path, timeout=60)
    database.executescript(TABLES)
    return contextlib.closing(database)


def is_booked(database: sqlite3.Connection, number: int) -> bool:
    found = database.execute("select 1 from orders where number = ?", (number,))
    return found.fetchone() is not None


def book(database: sqlite3.Connection, number: int, transaction_id: str) -> None:
    """Step 2: store the order and the decision to commit; nothing if a check came first."""
    with contextlib.suppress(sqlite3.IntegrityError), database:
        database.execute("insert into outcomes values (?, 'commit')", (transaction_id,))
        database.execute("insert into orders values (?, 'two teapots')", (number,))


def decision(database: sqlite3.Connection, transaction_id: str) -> str:
    """The decision of a transaction; one without a decision is rolled back from now on."""
    with database:
        database.execute("insert or ignore into outcomes values (?, 'rollback')", (transaction_id,))
    found = database.execute(
        "select decision from outcomes where transaction_id = ?", (transaction_id,)
    )
    return str(found.fetchone()[0])


def settle(client: Client, database: sqlite3.Connection, transaction_id: str) -> None:
    """Step 3, by ``place`` or by a check: send the coordinator the decision of the database."""
    commits = decision(database, transaction_id) == "commit"
    decide = client.commit_transaction if commits else client.rollback_transaction
    try:
        patiently(lambda: decide(transaction_id, reason="as in the shop's database"))
    except ProblemError as refused:  # an operator decided it
        print(f"transaction {transaction_id}: {refused}", flush=True)


def place(client: Client, database: sqlite3.Connection, number: int) -> None:
    """Book an order and announce it. The caller repeats it while the order is not booked."""
    message = NewMessage(
        body=f"order {number}: two teapots",
        keys=(f"order-{number}",),
        uniq_key=uuid.uuid4().hex,  # so that a begin without a reply can be repeated
    )
    try:
        begun = patiently(lambda: client.begin(GROUP, TOPIC, [message]))
    except ProblemError as refused:
        if refused.type == "transaction-decided":
            return  # rolled back by a check, before the reply to this begin
        raise
    book(database, number, begun.transaction_id)
    settle(client, database, begun.transaction_id)


def answer_checks(path: str, options: dict[str, Any]) -> None:
    """Decide the transactions that a shop of this group began and did not end; never returns."""
    with Client(**options) as client, opened(path) as database:
        while True:
            checks = patiently(lambda: client.take_checks(GROUP, wait_s=20))
            for each in checks.transactions:
                settle(client, database, each.transaction_id)


def patiently(call: Callable[[], T]) -> T:
    """Repeat a call until it is replied to; every call here is safe to repeat."""
    while True:
        try:
            return call()
        except Unreachable:
            pass
        except ProblemError as problem:
            if problem.status < 500 and problem.status != 429:
                raise
        time.sleep(0.5)


def run(path: str, count: int, **options: Any) -> None:
    """Place the orders that the database lacks, and decide checks until Ctrl-C."""
    with Client(**options) as client, opened(path) as database:
        threading.Thread(target=answer_checks, args=(path, options), daemon=True).start()
        for number in range(1, count + 1):
            while not is_booked(database, number):
                place(client, database, number)
            print(f"order {number} is booked", flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("database", help="file of the sqlite database; made if it is not there")
    parser.add_argument("count", type=int, help="how many orders there are to be")
    parser.add_argument("--coordinator-url", default=COORDINATOR_URL)
    parser.add_argument("--token", help="of role produce, where tokens are needed")
    given = parser.parse_args()
    with contextlib.suppress(KeyboardInterrupt):
        run(given.database, given.count, coordinator_url=given.coordinator_url, token=given.token)
