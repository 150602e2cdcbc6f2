"""The client's producers of transactions: decisions, polled checks, callbacks."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from mqstore.client import (
    AsyncClient,
    BegunTransaction,
    Client,
    NewMessage,
    ProblemError,
    Transaction,
    Verdict,
)
from mqstore.service.sockets import bind
from tests.services.service_processes import Process
from tests.services.transaction_shard import Shard, shard_at

LATER_S = 60


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shard]:
    with shard_at(tmp_path_factory.mktemp("shard"), transaction_check_interval=1_000) as found:
        yield found


@pytest.fixture
def shard(shared: Shard) -> Shard:
    return shared.afresh()


@pytest.fixture(scope="module")
def port() -> int:
    """A port at which the coordinator may call a producer."""
    with bind("127.0.0.1", 0) as bound:
        return int(bound.getsockname()[1])


@pytest.fixture(scope="module")
def coordinator(shared: Shard, port: int) -> Iterator[Process]:
    """The only one of the shard: another, with other settings, would count each call that it may
    not make as a failure of the producer."""
    allowed: dict[str, Any] = {
        "callback_hosts": "127.0.0.0/8",
        "callback_http": "true",
        "callback_ports": port,
    }
    with shared.coordinator(**allowed) as found:
        yield found


def client_of(shard: Shard, coordinator: Process) -> Client:
    return Client(shard.writer.url, shard.query.url, coordinator_url=coordinator.url)


class Books:
    """Decisions of an application; "unknown" for a transaction that it does not know."""

    def __init__(self) -> None:
        self.decisions: dict[str, Verdict] = {}
        self.checked: list[str] = []
        self.called = threading.Semaphore(0)

    def check(self, transaction: Transaction) -> Verdict:
        self.checked.append(transaction.transaction_id)
        self.called.release()
        return self.decisions.get(transaction.transaction_id, "unknown")


def settled(client: Client, transaction_id: str) -> Transaction:
    """The transaction, once a check decided it."""
    while (found := client.transaction(transaction_id)).state == "pending":
        pass
    return found


def test_a_local_function_decides(shard: Shard, coordinator: Process) -> None:
    books = Books()

    def execute(verdict: Verdict | None, begun: BegunTransaction) -> Verdict | None:
        assert threading.current_thread() is threading.main_thread()
        return verdict

    with (
        client_of(shard, coordinator) as client,
        client.transactional_producer("local", books.check, "orders") as producer,
    ):
        committed = producer.send_in_transaction("committed", partial(execute, "commit"))
        of_two = [NewMessage(body="one"), NewMessage(body="two", uniq_key="second")]
        producer.send_in_transaction(of_two, partial(execute, None))
        undone = producer.send_in_transaction("rolled back", partial(execute, "rollback"))
        begun = producer.begin("by steps")
        assert producer.commit(begun.transaction_id).state == "committed"
        dropped = producer.begin("dropped")
        assert producer.rollback(dropped.transaction_id, reason="why").why == "why"
        with pytest.raises(ProblemError, match="decided"):
            producer.commit(dropped.transaction_id)
    assert (committed.state, undone.state) == ("committed", "rolled-back")
    assert shard.bodies() == ["by steps", "committed", "one", "two"]


@pytest.mark.parametrize("listens", [False, True])
def test_a_check_decides_what_the_function_left_open(
    shard: Shard, coordinator: Process, port: int, listens: bool
) -> None:
    books = Books()

    def fail(begun: BegunTransaction) -> Verdict | None:
        books.decisions[begun.transaction_id] = "commit"  # the local transaction was done
        failed.append(begun.transaction_id)
        raise RuntimeError("no reply of the database")

    def leave(begun: BegunTransaction) -> Verdict | None:
        return "unknown"

    failed: list[str] = []
    listen = ("127.0.0.1", port) if listens else None
    with client_of(shard, coordinator) as client:
        group = f"checked-{listens}"
        with client.transactional_producer(
            group, books.check, "orders", check_immunity_s=0, listen=listen
        ) as producer:
            with pytest.raises(RuntimeError):
                producer.send_in_transaction(f"done {listens}", fail)
            left = producer.send_in_transaction(f"left {listens}", leave)
            assert left.state == "pending"
            assert settled(client, failed[0]).state == "committed"
            while left.transaction_id not in books.checked:
                assert books.called.acquire(timeout=LATER_S)
            books.decisions[left.transaction_id] = "rollback"
            assert settled(client, left.transaction_id).state == "rolled-back"
            registered = client.producers(group).producers
            assert len(registered) == (1 if listens else 0)
        assert client.producers(group).producers == ()
    assert shard.bodies() == [f"done {listens}"]


def test_a_transaction_that_is_being_executed_is_not_checked(
    shard: Shard, coordinator: Process
) -> None:
    books = Books()

    def execute(begun: BegunTransaction) -> Verdict | None:
        books.decisions[begun.transaction_id] = "rollback"
        while not client.transaction(begun.transaction_id).checks_sent:
            pass  # a check came, and was not answered
        return "commit"

    with (
        client_of(shard, coordinator) as client,
        client.transactional_producer(
            "executing", books.check, "orders", check_immunity_s=1
        ) as producer,
    ):
        assert producer.send_in_transaction("executed", execute).state == "committed"
    assert books.checked == []
    assert shard.bodies() == ["executed"]


def test_a_check_that_raises_or_returns_nonsense_decides_nothing(
    shard: Shard, coordinator: Process
) -> None:
    called = threading.Semaphore(0)
    answers: list[Any] = ["perhaps", None]

    def check(transaction: Transaction) -> Verdict:
        called.release()
        if answers:
            return answers.pop()  # type: ignore[no-any-return]
        raise RuntimeError("no database")

    with (
        client_of(shard, coordinator) as client,
        client.transactional_producer("odd", check, "orders", check_immunity_s=0) as producer,
    ):
        begun = producer.begin("odd")
        for _ in range(3):
            assert called.acquire(timeout=LATER_S)
        assert client.transaction(begun.transaction_id).state == "pending"
        producer.rollback(begun.transaction_id)


def test_a_callback_that_is_not_allowed_is_refused_at_the_start(
    shard: Shard, coordinator: Process
) -> None:
    books = Books()
    with client_of(shard, coordinator) as client:
        producer = client.transactional_producer(
            "g", books.check, listen=("127.0.0.1", 0), callback_url="http://billing.example/"
        )
        with pytest.raises(ProblemError, match="callback-refused"), producer:
            pass
        with pytest.raises(ValueError, match="listen"):
            client.transactional_producer("g", books.check, callback_url="https://billing/")
        with (
            client.transactional_producer("g", books.check) as without_topic,
            pytest.raises(ValueError, match="topic"),
        ):
            without_topic.begin("a")
        with (
            client.transactional_producer("g", books.check, "orders") as ordered,
            pytest.raises(ValueError, match="ordering key"),
        ):
            ordered.begin(NewMessage(ordering_key="k"))


def test_tasks_produce_in_transactions(shard: Shard, coordinator: Process) -> None:
    async def produce() -> None:
        urls = shard.writer.url, shard.query.url
        async with (
            AsyncClient(*urls, coordinator_url=coordinator.url) as client,
            client.transactional_producer("tasks", Books().check, "orders") as producer,
        ):

            async def execute(begun: BegunTransaction) -> Verdict | None:
                return None

            found = await asyncio.gather(
                *[producer.send_in_transaction(f"task {each}", execute) for each in range(10)]
            )
            assert {each.state for each in found} == {"committed"}

    asyncio.run(produce())
    assert shard.bodies() == [f"task {each}" for each in range(10)]
