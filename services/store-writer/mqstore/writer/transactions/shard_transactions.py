"""The transactions of an open store: the engine with its background step, and its callers."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from mqstore.service import logs
from mqstore.service.settings import Settings
from mqstore.storage import MessageStore
from mqstore.storage.errors import StorageError
from mqstore.storage.host import Seams
from mqstore.storage.puts import UniqueKeys
from mqstore.storage.transactions import OnAppend, Rules, TransactionEngine
from mqstore.writer.transactions.checks import Checks
from mqstore.writer.transactions.producers import Producers
from mqstore.writer.transactions.turns import Settle, Turns

log = logs.get(__name__)

READY_WITHIN_S: Final = 10.0
"""How long a service whose store is open waits for its transactions before it says that it is
ready: messages are taken meanwhile."""


class ShardTransactions:
    """Made once the store is open for writing. Used on the event loop only.

    ``engine`` may be used from any thread; only ``turns`` begins and decides.
    """

    def __init__(
        self,
        store: MessageStore,
        seams: Seams,
        settings: Settings,
        producers: Producers,
        *,
        settle: Settle | None,
        on_append: OnAppend,
        failed: Callable[[BaseException], None],
    ) -> None:
        """``settle`` as of ``Turns``. ``on_append`` is called on the event loop, ``failed`` by any
        thread when the engine fails."""
        rules = Rules(
            settings.transaction_time_out,
            settings.transaction_check_interval,
            settings.transaction_check_max,
        )
        self.engine = TransactionEngine(store, seams, UniqueKeys(seams), rules)
        self.turns = Turns(self.engine, settle, failed)
        self.checks = Checks(self.engine, settings.shard, producers)
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._on_append = on_append
        self.engine.watch_appends(self._note_append)
        self._stepped = asyncio.Event()
        steps = _Steps(self.engine, partial(self._loop.call_soon_threadsafe, self._stepped.set))
        self._stepping = seams.scheduler.start(steps, failed)
        self.engine.wake = self._stepping.wake

    async def first_step(self) -> None:
        """Returns when the half messages were read, or could not be, or this takes long: a service
        that says that it is ready then takes transactions, mostly."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stepped.wait(), READY_WITHIN_S)

    def end(self) -> None:
        """The service is shutting down: no request waits for checks any longer."""
        self.checks.end()
        self._stepped.set()

    async def stop(self) -> None:
        """Returns when nothing uses the engine, and its progress is saved. Before the store is
        closed."""
        await self.turns.stop()
        await asyncio.to_thread(self._leave)

    def _note_append(self, messages: Sequence[tuple[str, int]], seconds: float) -> None:
        """By the thread that appends."""
        if threading.get_ident() == self._thread:
            self._on_append(messages, seconds)
        else:
            self._loop.call_soon_threadsafe(self._on_append, messages, seconds)

    def _leave(self) -> None:
        self._stepping.stop()
        try:
            self.engine.leave()
        except StorageError as error:  # the next opening reads from the offsets saved before
            log.warning("the progress of transactions cannot be saved", error=str(error))


class _Steps:
    """The engine as a ``BackgroundService`` that reports its first step."""

    name = TransactionEngine.name

    def __init__(self, engine: TransactionEngine, on_first: Callable[[], object]) -> None:
        self._engine = engine
        self._on_first: Callable[[], object] | None = on_first

    def step(self, now: float) -> float:
        try:
            return self._engine.step(now)
        finally:
            if self._on_first is not None:
                self._on_first()
                self._on_first = None
