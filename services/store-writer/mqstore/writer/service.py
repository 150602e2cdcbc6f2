"""The store-writer process: opens the store, serves its interface, closes it.

Threads: the event loop appends and answers; the store's own threads flush, dispatch and allocate,
and one plans the checks of transactions;
opening, closing and topic changes run in worker threads, since they wait for the disk, and so does
the making of files that puts need.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import time
from functools import cached_property, partial
from ipaddress import ip_address
from typing import Any, Final

from mqstore.service import logs, problems
from mqstore.service.app import Api
from mqstore.service.auth import OwnToken
from mqstore.service.events import Events
from mqstore.service.health import Health
from mqstore.service.http import Front
from mqstore.service.problems import STORE_NOT_READY, Problem
from mqstore.service.settings import Settings
from mqstore.service.shards import Shards
from mqstore.storage import MessageStore
from mqstore.storage.admin import TopicConfig
from mqstore.storage.directory import WriterNote, put_writer_note, remove_writer_note
from mqstore.storage.errors import DataMissing, DiskRefuses, StorageError
from mqstore.storage.host import production_seams
from mqstore.storage.retention import FORCED_DELETION
from mqstore.storage.settings import FlushDiskType
from mqstore.storage.status import Progress
from mqstore.writer.durability import DurabilityWaiter
from mqstore.writer.elsewhere import Elsewhere
from mqstore.writer.files_due import FilesDue
from mqstore.writer.key_routing import KeyRouting
from mqstore.writer.newcomer import Newcomer
from mqstore.writer.opening import Opening
from mqstore.writer.store_metrics import StoreMetrics
from mqstore.writer.transactions.metrics import TransactionMetrics
from mqstore.writer.transactions.producers import Producers
from mqstore.writer.transactions.shard_transactions import ShardTransactions
from mqstore.writer.watching import Watching

log = logs.get(__name__)

DESCRIPTION: Final = """\
Stores messages in a RocketMQ store directory: topics, produce, and what the store says of itself. \
Messages are read at the query service (port 8082 by default).

Begin with `PUT /v1/topics/orders`, then `POST /v1/topics/orders/messages`; the answer names each \
message's `offsetMsgId`, which query finds it by.
"""
TAGS: Final = {
    "messages": "Produce: one message or a batch, in JSON or as RocketMQ's clients encode it.",
    "topics": "Created before they take messages, unless autoCreateTopicEnable is set.",
    "transactions": "Begin, commit, roll back; what is pending, and how each came to its end.",
    "groups": "Consumer groups: what they have consumed, and how they may.",
    "internal": "For mqstore's other services, role system: due checks, reports of damage.",
    "store": "Bounds, files and the recovery report of the store directory.",
    "index": "The index made anew by a job, while messages are put and found. Role system.",
    "retention": "What is deleted, when and why; and pins, which keep a range for a job or backup.",
}


class WriterService:
    """As ``mqstore.service.server.Service``."""

    name = "store-writer"

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.address = ""
        self.health = Health()
        self.health.progress = self._progress
        self.health.moves = lambda: self._recovery
        self.health.not_ready_reason = self._not_ready_reason
        self.health.not_serving_reason = self._not_serving_reason
        self.health.remark = self._remark
        self._loop = asyncio.get_running_loop()
        self.failure: asyncio.Future[BaseException] = self._loop.create_future()
        self.seams = production_seams()
        self._recovery: Progress | None = None
        self.events = Events()
        self.watching = Watching(self.events, lambda: self._store)
        self._watcher: asyncio.Task[None] | None = None
        self._store: MessageStore | None = None
        self._opening = Opening(settings, self.seams, self._note_progress, self._note_failure)
        self._retrying: asyncio.Task[None] | None = None
        self._ending = asyncio.Event()
        self._durability: DurabilityWaiter | None = None
        self.topics: dict[str, TopicConfig] = {}
        """Topics that take messages, as looked up by name; emptied when topics change."""
        self.commits: DurabilityWaiter | None = None
        """With a TransientStorePool: what is put counts once the page cache has it."""
        self.shards = Shards(settings, lambda entry: entry.writer_url)
        self.api = Api(
            settings,
            self.health,
            title="mqstore store-writer",
            description=DESCRIPTION,
            tags=TAGS,
            shards=self.shards,
        )
        self.api.guard_changes(self.require_writable, problems.READ_ONLY_KINDS)
        self.files_due = FilesDue()
        self._own_token = OwnToken(settings.tokens)
        self.elsewhere = Elsewhere(self.shards, self._own_token)
        self.key_routing = KeyRouting(self.shards)
        self._newcomer: Newcomer | None = None
        self._copying: asyncio.Task[None] | None = None
        self.producers = Producers(time.monotonic)
        self._transactions: ShardTransactions | None = None
        self.metrics = StoreMetrics(
            self.api.metrics.registry,
            self.api.metrics.rocketmq,
            settings.metrics_topics_max,
            lambda: self._store,
            lambda: self._opening.refused,
        )
        TransactionMetrics(
            self.api.metrics.registry,
            self.api.metrics.rocketmq,
            settings.metrics_topics_max,
            settings.shard,
            lambda: None if self._transactions is None else self._transactions.engine,
        )

    @cached_property
    def front(self) -> Front:
        """Made once all routes are in ``api``."""
        return self.api.front()

    @property
    def store(self) -> MessageStore:
        """The open store. Raises Problem (503) while there is none."""
        if self._store is None or self.failure.done():
            self.health.require_started()
            raise Problem(STORE_NOT_READY, "the store is not open")
        return self._store

    @property
    def durability(self) -> DurabilityWaiter:
        if self._durability is None:
            raise Problem(STORE_NOT_READY, "the store is not open")
        return self._durability

    @property
    def transactions(self) -> ShardTransactions:
        """The transactions of the open store. Raises Problem (503) while there are none."""
        if self._transactions is None:
            self.health.require_started()
            raise Problem(STORE_NOT_READY, "the store is not open for writing")
        return self._transactions

    @property
    def has_transactions(self) -> bool:
        return self._transactions is not None

    async def settled(self, end: int, *, sync: bool) -> None:
        """Wait until what was appended up to ``end`` counts, and for ``sync`` is on disk.

        Raises FlushTimeout, StoreFailed.
        """
        if self.commits is not None:
            await self.commits.wait(end)
        if sync:
            started = time.perf_counter()
            await self.durability.wait(end)
            self.metrics.sync_seconds.observe(time.perf_counter() - started)

    def require_writable(self) -> None:
        """Raises Problem (503) while nothing may be changed."""
        reason = self.store.read_only_reason
        if reason is None:
            return
        if self._retrying is None or self.store.recovery.plan.loss is not None:
            raise Problem(problems.STORE_READ_ONLY, reason)
        headers = {"retry-after": str(self._opening.next_attempt_s)}
        raise Problem(problems.DISK_REFUSES, reason, headers=headers)

    def require_joined(self) -> None:
        """Raises Problem (503) while other shards would not miss what is put here, or while this
        shard lacks topics that they have."""
        reason = self._not_joined_reason()
        if reason is not None:
            raise Problem(STORE_NOT_READY, reason)

    def require_transactions(self) -> None:
        """Raises Problem (503) while nothing can be begun, decided or checked. A pause of writes
        does not hold transactions back."""
        self.require_writable()
        self.require_joined()

    def require_puts(self) -> None:
        """Raises Problem (503) while no messages are taken."""
        self.require_writable()
        self.require_joined()
        pause = self.store.write_pause.current
        if pause is not None:
            raise Problem(problems.WRITES_PAUSED, pause.reason, extra={"sinceMs": pause.since_ms})

    async def start(self) -> None:
        self._watcher = self._loop.create_task(self.watching.run())
        self.shards.start()
        if not await self._try_to_open():
            self._retrying = self._loop.create_task(self._open_later())

    async def _try_to_open(self) -> bool:
        """Open for writing; False where the store can only be read for now, and is."""
        before = self._opening.refusal
        try:
            store = await asyncio.to_thread(self._opening.open)
        except (DiskRefuses, DataMissing) as error:
            if self._is_news(before, error):
                log.error("the store can only be read", error=str(error))
                self._store = await asyncio.to_thread(self._opening.look_at_it, error)
                await asyncio.to_thread(gc.collect)
            else:
                log.warning("the disk still refuses", error=str(error))
            return False
        finally:
            if self._opening.room_made is not None:
                self.events.publish(FORCED_DELETION, **self._opening.room_made)
        self._use(store)
        await self.transactions.first_step()
        if before is not None:
            await asyncio.to_thread(gc.collect)
        return True

    def _is_news(self, before: StorageError | None, error: StorageError) -> bool:
        """Whether readers need another view: the one before keeps what was deleted since."""
        is_same = type(before) is type(error) and not isinstance(error, DataMissing)
        return not is_same or self._opening.room_made is not None

    async def _open_later(self) -> None:
        """Try again, at ever longer intervals, until the disk holds; where data is missing, once it
        was put back or its loss accepted."""
        try:
            while not await self._opening.pause(self._ending):
                if await self._try_to_open():
                    return
        except StorageError as error:
            self._fail(error)

    def _use(self, store: MessageStore) -> None:
        """Serve requests from this one from now on. A view that was served before stays with its
        last readers. Its parts refer to each other, so its maps, which keep the blocks of deleted
        segments in use, go with a collection of garbage."""
        timeout_s = store.config.sync_flush_timeout / 1000
        self._durability = DurabilityWaiter(store.flush, timeout_s)
        if store.commits is not None:
            self.commits = DurabilityWaiter(store.commits, timeout_s, place="in the page cache")
        self._store, self._retrying = store, None
        self._newcomer = Newcomer(self.shards, store, self._own_token)
        self._copying = self._loop.create_task(self._newcomer.run(self.topics.clear))
        self._transactions = self._begin_transactions(store)
        self.watching.opened(store)
        self.metrics.watch(store)
        self._note(store)
        status = store.status()
        log.info(
            "store open",
            path=status.root,
            min_offset=status.min_offset,
            max_offset=status.max_offset,
            format=status.format,
        )

    def _begin_transactions(self, store: MessageStore) -> ShardTransactions:
        sync = store.config.flush_disk_type is FlushDiskType.SYNC
        return ShardTransactions(
            *(store, self.seams, self.settings, self.producers),
            settle=partial(self.settled, sync=sync) if sync or self.commits else None,
            on_append=self.metrics.appended,
            failed=self._note_failure,
        )

    def _note(self, store: MessageStore) -> None:
        """So that jobs find this process by the store's path; they can be told its address too."""
        note = WriterNote(url=self._own_url(), pid=os.getpid())
        try:
            put_writer_note(self.seams.files, store.paths, note)
        except OSError as error:
            log.warning("where this process is reached cannot be noted", error=str(error))

    def _own_url(self) -> str:
        """As processes of this machine reach it."""
        scheme = "http" if self.settings.tls_cert is None else "https"
        host, _, port = self.address.rpartition(":")
        if ip_address(host.strip("[]")).is_unspecified:
            host = "[::1]" if ":" in host else "127.0.0.1"
        return f"{scheme}://{host}:{port}"

    def interrupt(self) -> None:
        """Group commits end by themselves."""
        self._ending.set()
        if self._store is not None:
            self.watching.closing(self._store)
        if self._transactions is not None:
            self._transactions.end()
        self.events.end()

    async def stop(self) -> None:
        self._ending.set()
        if self._watcher is not None:
            self._watcher.cancel()
        if self._retrying is not None:
            await self._retrying
        if self._copying is not None:
            self._copying.cancel()
            await asyncio.wait({self._copying})
        await self.shards.stop()
        if self._transactions is not None:
            await self._transactions.stop()
        store, self._store = self._store, None
        if store is not None:
            await asyncio.to_thread(self._close, store)

    def _close(self, store: MessageStore) -> None:
        store.close()
        if self._durability is not None:  # else it was only looked at
            with contextlib.suppress(OSError):
                remove_writer_note(self.seams.files, store.paths)

    def _note_progress(self, progress: Progress) -> None:
        """Called from the opening thread."""
        self._recovery = progress
        self.watching.note_progress(progress)

    def _note_failure(self, error: BaseException) -> None:
        """Called from any thread."""
        self._loop.call_soon_threadsafe(self._fail, error)

    def _fail(self, error: BaseException) -> None:
        if not self.failure.done():
            self.events.publish("failed", reason=str(error))
            self.failure.set_result(error)

    def _progress(self) -> dict[str, Any]:
        progress = self._recovery
        if progress is None:
            return {}
        return {"stage": progress.stage, "done": progress.done, "total": progress.total}

    def _remark(self) -> str | None:
        trouble = None if self._store is None else self._store.index_trouble
        if trouble is None and self._transactions is not None:
            trouble = self._transactions.engine.trouble
        return trouble

    def _not_serving_reason(self) -> str | None:
        if self._store is None:
            return "the store is not open"
        return self._not_joined_reason()

    def _not_joined_reason(self) -> str | None:
        copying = None if self._newcomer is None else self._newcomer.reason
        return self.shards.joining.reason or copying

    def _not_ready_reason(self) -> str | None:
        if self._store is not None and (refusal := self._store.put_refusal) is not None:
            return refusal.detail
        return self._not_serving_reason()
