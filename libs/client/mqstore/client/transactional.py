"""Producers of transactions: messages become visible together with a local transaction, or never.

``AsyncTransactionalProducer`` does the work, on an event loop; ``TransactionalProducer`` runs one
in a thread of its own, for applications without a loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import socket
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Final, Literal, Self, get_args

from mqstore.client import transaction_calls
from mqstore.client.check_listener import CheckListener
from mqstore.client.errors import ClientError
from mqstore.client.home_process import HomeProcess
from mqstore.client.loop_thread import LoopThread
from mqstore.client.new_message import NewMessage
from mqstore.client.requests import Asynchronous, Call
from mqstore.client.retries import REQUESTED_PAUSE_MAX_S, RetryBudget, is_transient
from mqstore.wire.limits import POLL_S
from mqstore.wire.transactions import BegunTransaction, Transaction

log = logging.getLogger(__name__)

Verdict = Literal["commit", "rollback", "unknown"]
New = NewMessage | str | bytes | Sequence[NewMessage]
"""A message to begin a transaction with, or several."""

PATIENCE_S: Final = 30.0
LEASE_S: Final = 90
RENEWED_AFTER_S: Final = LEASE_S / 3


@dataclass(frozen=True, slots=True)
class TransactionalSpec:
    """How a producer begins transactions and answers checks: the parameters of
    ``transactional_producer``."""

    group: str
    check: Callable[[Transaction], Verdict]
    topic: str | None
    check_immunity_s: int | None
    patience_s: float
    listen: tuple[str, int] | None
    callback_url: str | None
    shard: int | None

    def __post_init__(self) -> None:
        """Raise ValueError for values that do not fit."""
        if self.callback_url is not None and self.listen is None:
            raise ValueError("callback_url needs listen, the address that the calls arrive at")

    def begin(self, messages: New, topic: str | None) -> Call[BegunTransaction]:
        """Return the request that begins a transaction. Raises ValueError."""
        topic = topic or self.topic
        if topic is None:
            raise ValueError("the transaction has no topic; give it, or the producer, one")
        if isinstance(messages, str | bytes):
            messages = NewMessage(body=messages)
        return transaction_calls.begin(
            self.group,
            topic,
            messages,
            check_immunity_s=self.check_immunity_s,
            shard=self.shard,
            patience_s=self.patience_s,
        )

    def decide(self, transaction_id: str, verdict: Verdict, reason: str = "") -> Call[Transaction]:
        """Return the request that sends a decision; for "unknown", one that reads the state."""
        match verdict:
            case "commit":
                call = transaction_calls.commit_transaction(transaction_id, reason=reason)
            case "rollback":
                call = transaction_calls.rollback_transaction(transaction_id, reason=reason)
            case "unknown":
                call = transaction_calls.transaction(transaction_id)
        return replace(call, patience_s=self.patience_s)


def transactional_producer(
    group: str,
    check: Callable[[Transaction], Verdict],
    topic: str | None = None,
    *,
    check_immunity_s: int | None = None,
    patience_s: float = PATIENCE_S,
    listen: tuple[str, int] | None = None,
    callback_url: str | None = None,
    shard: int | None = None,
) -> TransactionalSpec:
    """Produce messages in transactions.

    ``check`` decides a transaction of the producer ``group`` that was not decided in time, one of
    another process too: it returns "commit", "rollback" or, if that is not known yet, "unknown". It
    is called on threads of the producer, and reads the decision where the local transaction stored
    it. ``topic`` is that of messages that are sent without one. ``check_immunity_s`` is the time
    before the first check. Requests are retried for ``patience_s`` seconds.

    Checks are polled from the coordinator. With ``listen``, a host and port, the coordinator calls
    the application there instead; ``callback_url`` is the address that leads to it, by default
    ``http://HOST:PORT/``. The coordinator's ``callbackHosts`` must allow it. Raises ValueError.
    """
    return TransactionalSpec(
        group, check, topic, check_immunity_s, patience_s, listen, callback_url, shard
    )


class AsyncTransactionalProducer:
    """A producer of transactions, for asyncio. Use it on the event loop of its client.

    ::

        async with client.transactional_producer("billing", check, "orders") as producer:
            await producer.send_in_transaction("order 1 was paid", book)

    Inside the block the producer answers checks.
    """

    def __init__(self, client: Asynchronous, spec: TransactionalSpec) -> None:
        """``client.transactional_producer`` makes it."""
        self._client = client
        self._home = HomeProcess("producer")
        self._spec = spec
        self._executing: set[str] = set()
        """Transactions whose local function runs, or whose decision is being sent."""
        self._secret = secrets.token_hex(32)
        self._name = f"{socket.gethostname()[:50]}-{os.getpid()}-{secrets.token_hex(4)}"
        self._stack = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        self._home.require()
        async with contextlib.AsyncExitStack() as stack:
            if self._spec.listen is None:
                work = self._poll()
            else:
                work = self._renew(await self._listen(stack, *self._spec.listen))
            task = asyncio.create_task(work)
            stack.push_async_callback(_cancel, task)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._home.is_current:
            await self._stack.aclose()

    async def begin(self, messages: New, topic: str | None = None) -> BegunTransaction:
        """Begin a transaction: store messages that no consumer receives before the commit.

        Raises ValueError, for a message with a delay or an ordering key too.
        """
        self._home.require()
        return await self._client.send(self._spec.begin(messages, topic))

    async def commit(self, transaction_id: str, *, reason: str = "") -> Transaction:
        """Commit a transaction: its messages are visible when this returns. May be repeated."""
        return await self._client.send(self._spec.decide(transaction_id, "commit", reason))

    async def rollback(self, transaction_id: str, *, reason: str = "") -> Transaction:
        """Roll a transaction back: no consumer receives its messages. May be repeated."""
        return await self._client.send(self._spec.decide(transaction_id, "rollback", reason))

    async def send_in_transaction(
        self,
        messages: New,
        execute: Callable[[BegunTransaction], Awaitable[Verdict | None]],
        topic: str | None = None,
    ) -> Transaction:
        """Begin a transaction, await ``execute``, and send its decision; returns the transaction.

        ``execute`` does the local transaction, and returns "commit" (or None), "rollback", or
        "unknown", which leaves the decision to ``check``. So does an exception, which is raised
        again: the local transaction may have been done before it. If the decision cannot be sent,
        ClientError is raised, and ``check`` gives it later.
        """
        begun = await self.begin(messages, topic)
        with self.executing(begun):
            return await self.decide(begun, await execute(begun) or "commit")

    async def decide(self, begun: BegunTransaction, verdict: Verdict) -> Transaction:
        """Send a decision; returns the transaction, which stays pending with "unknown"."""
        return await self._client.send(self._spec.decide(begun.transaction_id, verdict))

    @contextlib.contextmanager
    def executing(self, begun: BegunTransaction) -> Iterator[None]:
        """Answer checks of a transaction with "unknown" inside the block: it is being decided."""
        self._executing.add(begun.transaction_id)
        try:
            yield
        finally:
            self._executing.discard(begun.transaction_id)

    # checks -------------------------------------------------------------------------------

    def _verdict(self, transaction: Transaction) -> Verdict:
        """Return the answer to a check; on any thread."""
        if transaction.transaction_id in self._executing:
            return "unknown"
        try:
            verdict = self._spec.check(transaction)
            if verdict not in get_args(Verdict):
                raise ValueError(f"check returned {verdict!r}; return one of {get_args(Verdict)}")
        except Exception:
            log.exception("a check of %s failed", transaction.transaction_id)
            return "unknown"
        return verdict

    async def _poll(self) -> None:
        """Take due checks and decide them, until cancelled."""
        retries = RetryBudget(inf)
        call = transaction_calls.take_checks(self._spec.group, wait_s=POLL_S)
        while True:
            try:
                taken = await self._client.send(call)
                for each in taken.transactions:
                    await self._answer(each)
                retries = RetryBudget(inf)
            except ClientError as error:
                log.warning("checks of %s: %s; they are taken later", self._spec.group, error)
                is_final = not is_transient(error)
                await asyncio.sleep(REQUESTED_PAUSE_MAX_S if is_final else retries.pause_s(error))

    async def _answer(self, transaction: Transaction) -> None:
        verdict = await asyncio.to_thread(self._verdict, transaction)
        if verdict == "unknown":
            return
        try:
            await self._client.send(self._spec.decide(transaction.transaction_id, verdict, "check"))
        except ClientError as error:
            log.warning("%s is not decided: %s", transaction.transaction_id, error)

    async def _listen(self, stack: contextlib.AsyncExitStack, host: str, port: int) -> str:
        """Listen for checks, and register; returns the address. Raises OSError, ClientError."""
        listener = CheckListener(host, port, self._secret, self._verdict)
        stack.enter_context(listener)
        url = self._spec.callback_url or f"http://{listener.address}/"
        await self._register(url, self._spec.patience_s)
        stack.push_async_callback(self._remove)
        return url

    async def _renew(self, url: str) -> None:
        """Renew the registration, until cancelled: a restarted shard has forgotten it."""
        while True:
            await asyncio.sleep(RENEWED_AFTER_S)
            try:
                await self._register(url, RENEWED_AFTER_S)
            except ClientError as error:
                log.warning("callback of %s: %s; it is registered later", self._spec.group, error)

    async def _register(self, url: str, patience_s: float) -> None:
        call = transaction_calls.register_producer(
            self._spec.group, self._name, url, self._secret, lease_s=LEASE_S
        )
        await self._client.send(replace(call, patience_s=patience_s))

    async def _remove(self) -> None:
        with contextlib.suppress(ClientError):
            call = transaction_calls.remove_producer(self._spec.group, self._name, self._secret)
            await self._client.send(call)


class TransactionalProducer:
    """A producer of transactions, for applications without an event loop. Thread-safe.

    ::

        with client.transactional_producer("billing", check, "orders") as producer:
            producer.send_in_transaction("order 1 was paid", book)

    Inside the block the producer answers checks, on threads of its own.
    """

    def __init__(self, make_client: Callable[[], Asynchronous], spec: TransactionalSpec) -> None:
        """``client.transactional_producer`` makes it."""
        self._spec = spec
        self._thread = LoopThread(
            "producer",
            f"transactions of {spec.group}",
            make_client,
            lambda client: AsyncTransactionalProducer(client, spec),
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.end()

    def begin(self, messages: New, topic: str | None = None) -> BegunTransaction:
        """Begin a transaction: store messages that no consumer receives before the commit.

        Raises ValueError, for a message with a delay or an ordering key too.
        """
        return self._thread.wait(self._thread.running.begin(messages, topic))

    def commit(self, transaction_id: str, *, reason: str = "") -> Transaction:
        """Commit a transaction: its messages are visible when this returns. May be repeated."""
        return self._thread.wait(self._thread.running.commit(transaction_id, reason=reason))

    def rollback(self, transaction_id: str, *, reason: str = "") -> Transaction:
        """Roll a transaction back: no consumer receives its messages. May be repeated."""
        return self._thread.wait(self._thread.running.rollback(transaction_id, reason=reason))

    def send_in_transaction(
        self,
        messages: New,
        execute: Callable[[BegunTransaction], Verdict | None],
        topic: str | None = None,
    ) -> Transaction:
        """Begin a transaction, call ``execute``, and send its decision; returns the transaction.

        ``execute`` does the local transaction, on the caller's thread, and returns "commit" (or
        None), "rollback", or "unknown", which leaves the decision to ``check``. So does an
        exception, which is raised again: the local transaction may have been done before it. If the
        decision cannot be sent, ClientError is raised, and ``check`` gives it later.
        """
        begun = self.begin(messages, topic)
        running = self._thread.running
        with running.executing(begun):
            return self._thread.wait(running.decide(begun, execute(begun) or "commit"))


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait({task})
