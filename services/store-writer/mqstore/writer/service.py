"""The store-writer process: opens the store, serves its routes, closes it.

Threads: the event loop appends and replies. The store's own threads flush, dispatch and allocate,
and one plans the checks of transactions. Worker threads open and close the store, change topics and
make files for puts, since these wait for the disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import sys
import time
from functools import cached_property, partial
from ipaddress import ip_address
from typing import Any, Final

from starlette.types import Scope

from mqstore.service import logs, problems, settings_routes
from mqstore.service.app import Api
from mqstore.service.auth import OwnToken
from mqstore.service.configuration_error import ConfigurationError
from mqstore.service.events import Events
from mqstore.service.forwarding import ForwardedRequest, read_client
from mqstore.service.health import Health
from mqstore.service.http import Front
from mqstore.service.metrics import Traffic
from mqstore.service.problems import STORE_NOT_READY, Problem
from mqstore.service.settings import Settings
from mqstore.service.shards import Shards
from mqstore.service.slave_errors import ChangeUnconfirmed
from mqstore.storage import MessageStore
from mqstore.storage.admin import TopicConfig
from mqstore.storage.directory import WriterNote, put_writer_note, remove_writer_note
from mqstore.storage.errors import DataMissing, DiskRefuses, FlushTimeout, StorageError
from mqstore.storage.host import production_seams
from mqstore.storage.retention import FORCED_DELETION
from mqstore.storage.settings import FlushDiskType
from mqstore.storage.status import Progress
from mqstore.writer.consumers.metrics import GroupStateMetrics
from mqstore.writer.consumers.waiting import SharedConsumers
from mqstore.writer.durability import DurabilityWaiter
from mqstore.writer.initial_state import InitialState
from mqstore.writer.key_ownership import KeyOwnership
from mqstore.writer.key_routing import KeyRouting
from mqstore.writer.opening import Opening
from mqstore.writer.pending_files import PendingFiles
from mqstore.writer.replication.follower import Follower
from mqstore.writer.replication.metrics import ReplicationMetrics
from mqstore.writer.replication.replica import Replica
from mqstore.writer.replication.replica_waiter import ReplicaWaiter
from mqstore.writer.store_metrics import StoreMetrics
from mqstore.writer.store_observer import StoreObserver
from mqstore.writer.transactions.metrics import TransactionMetrics
from mqstore.writer.transactions.producers import Producers
from mqstore.writer.transactions.shard_transactions import ShardTransactions
from mqstore.writer.waits import DISK, REPLICA, Waiter, reply_waiters
from mqstore.writer.writable_shards import WritableShards

log = logs.get(__name__)

DESCRIPTION: Final = """\
Stores messages in a RocketMQ store directory: topics, produce, and the state of the store. \
Messages are read at the query service (port 8082 by default).

Begin with `PUT /v1/topics/orders`, then `POST /v1/topics/orders/messages`; the reply has the \
`offsetMsgId` of each message, by which query finds it.
"""
UNCONFIRMED: Final = (
    "the change is made here, and not every replica in sync has acknowledged it within "
    "slaveTimeout: the next leader may lack it; repeat the request"
)
LEAD_LOST: Final = (
    "the change is made here, and this replica lost the lead of its shard meanwhile: the next "
    "leader may lack it; repeat the request there"
)
TAGS: Final = {
    "messages": "Produce: one message or a batch, in JSON or as RocketMQ's clients encode it.",
    "topics": "Created before they take messages, unless autoCreateTopicEnable is set.",
    "transactions": "Begin, commit, roll back; pending transactions; outcomes of finished ones.",
    "groups": "Consumer groups: their offsets and their configuration.",
    "consumers": "Shared and ordered groups: consumers lease messages, acknowledge or return them.",
    "internal": "For mqstore's other services, role system: due checks, reports of damage.",
    "store": "Bounds, files and the recovery report of the store directory.",
    "index": "Rebuild of the index by a job, while messages are stored and found. Role system.",
    "retention": "Deletion of files: plan and causes; pins that keep a range for a job or backup.",
    **settings_routes.TAG,
}


class WriterService:
    """The ``Service`` of the store-writer process (see ``mqstore.service.server``).

    Used on the event loop.
    """

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
        self.observer = StoreObserver(self.events, lambda: self._store, settings.election_lease)
        self._watcher: asyncio.Task[None] | None = None
        self._store: MessageStore | None = None
        self.followed = Traffic(settings.metrics_topics_max)
        """Messages that were copied from a leader."""
        self.replica = Replica(self)
        self.opening = Opening(
            *(settings, self.seams, self._note_progress, self._note_failure, self.replica.fetch)
        )
        self._retrying: asyncio.Task[None] | None = None
        self._shutting_down = asyncio.Event()
        self._durability: DurabilityWaiter | None = None
        self._changes: Waiter | None = None
        """Waits until replicas in sync have changes of tables."""
        self._waiters: dict[int, Waiter] = {}
        """By what is waited for."""
        self._default_waits: int | None = None
        self.topics: dict[str, TopicConfig] = {}
        """Cache of topics that take messages, by name; cleared when topics change."""
        self.commits: DurabilityWaiter | None = None
        """With a TransientStorePool: waits until the page cache has the messages. Else None."""
        self.shards = Shards(settings, lambda entry: entry.writer_url)
        self.api = Api(
            settings,
            self.health,
            title="mqstore store-writer",
            description=DESCRIPTION,
            tags=TAGS,
            shards=self.shards,
        )
        kinds = (*problems.READ_ONLY_KINDS, problems.CHANGE_UNCONFIRMED)
        self.api.guard_changes(self.require_writable, self.settle_change, kinds)
        self.pending_files = PendingFiles()
        self._own_token = OwnToken(settings.tokens)
        self.writable_shards = WritableShards(self.shards, self._own_token)
        self.key_ownership = KeyOwnership(self.shards, lambda: self.health.is_ready()[0])
        self.key_routing = KeyRouting(self.shards, self.key_ownership)
        self.shards.on_check = self.key_ownership.check
        self.health.key_owners = self.key_ownership.report
        self._initial_state: InitialState | None = None
        self._copying_state: asyncio.Task[None] | None = None
        self.producers = Producers(time.monotonic, settings.max_client_share)
        self._transactions: ShardTransactions | None = None
        self._consumers: SharedConsumers | None = None
        self.metrics = StoreMetrics(
            self.api.metrics.registry,
            self.api.metrics.rocketmq,
            settings.metrics_topics_max,
            lambda: self._store,
            lambda: self.opening.refused,
        )
        self._register_metrics()

    def _register_metrics(self) -> None:
        settings = self.settings
        TransactionMetrics(
            self.api.metrics.registry,
            self.api.metrics.rocketmq,
            settings.metrics_topics_max,
            settings.shard,
            lambda: None if self._transactions is None else self._transactions.engine,
        )
        ReplicationMetrics(
            self.api.metrics.registry,
            self.replica.leader,
            settings,
            self._follower,
            lambda: 0 if self._store is None else self._store.epochs.newest,
            self.followed,
        )
        GroupStateMetrics(
            self.api.metrics.registry,
            self.api.metrics.rocketmq,
            settings.metrics_lags_max,
            lambda: None if self._consumers is None else self._consumers.engine,
        )

    @cached_property
    def front(self) -> Front:
        """The HTTP front, made on first use. Use it after all routes were added to ``api``."""
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
        """Waits for syncs of the open store. Raises Problem (503) while there is none."""
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
    def consumers(self) -> SharedConsumers:
        """The shared groups of the open store. Raises Problem (503) while there are none."""
        if self._consumers is None:
            self.health.require_started()
            raise Problem(STORE_NOT_READY, "the store is not open for writing")
        return self._consumers

    @property
    def default_waits(self) -> int:
        """Conditions of a reply to stored messages unless its request names others. Raises Problem
        (503) without store."""
        if self._default_waits is None:
            waits = DISK if self.store.config.flush_disk_type is FlushDiskType.SYNC else 0
            is_replicated = self.settings.broker_role == "SYNC_MASTER"
            self._default_waits = waits | (REPLICA if is_replicated else 0)
        return self._default_waits

    def waiter(self, waits: int) -> Waiter:
        """Return the waiter for the disk, a replica or both. Raises Problem (503) without store."""
        if not self._waiters:
            raise Problem(STORE_NOT_READY, "the store is not open")
        return self._waiters[waits]

    @property
    def has_transactions(self) -> bool:
        """Whether the store is open for writing, and so serves transactions."""
        return self._transactions is not None

    def build_forwarded(self, scope: Scope, body: bytes) -> ForwardedRequest:
        """Return a client's request for another shard, with the client's address."""
        client = read_client(scope, self.api.auth)
        request = ForwardedRequest.of(scope, str(self.shards.own), body)
        return request.with_client(client, self._own_token())

    async def await_durability(self, end: int, waits: int) -> None:
        """Wait until the log up to ``end`` is in the page cache, and as ``waits`` says.

        Raises FlushTimeout, StoreFailed.
        """
        if self.commits is not None:
            await self.commits.wait(end)
        if waits:
            started = time.perf_counter()
            await self.waiter(waits).wait(end)
            self.metrics.waits_of(waits).observe(time.perf_counter() - started)

    def require_writable(self) -> None:
        """Raises Problem (503) while the store is read-only, or follows a leader."""
        reason = self.store.read_only_reason
        if reason is None:
            if (why := self.replica.refusal) is not None:
                raise Problem(STORE_NOT_READY, why)
            if (
                self.replica.following is not None
                and (refusal := self.store.put_refusal) is not None
            ):
                raise Problem(problems.STORE_READ_ONLY, refusal.detail)
            return
        if self._retrying is None or self.store.recovery.plan.loss is not None:
            raise Problem(problems.STORE_READ_ONLY, reason)
        headers = {"retry-after": str(self.opening.next_attempt_s)}
        raise Problem(problems.DISK_REFUSES, reason, headers=headers)

    async def settle_change(self) -> None:
        """Wait until all replicas in sync have all changes of tables but offsets that have grown.

        Raises ChangeUnconfirmed.
        """
        store, watch = self._store, self.replica.leader.watch
        if store is None or watch is None or self._changes is None:
            return
        watch.look()
        try:
            await self._changes.wait(store.table_feed.forced)
        except FlushTimeout as error:
            raise ChangeUnconfirmed(UNCONFIRMED) from error
        if not self.replica.leads:
            raise ChangeUnconfirmed(LEAD_LOST)

    def require_joined(self) -> None:
        """Raises Problem (503) while not all shards list this one, or this one lacks their topics.

        Otherwise other shards would not notice that messages stored here are missing.
        """
        reason = self._not_joined_reason()
        if reason is not None:
            raise Problem(STORE_NOT_READY, reason)

    def require_transactions(self) -> None:
        """Raises Problem (503) while transactions cannot be begun, decided or checked.

        A pause of writes does not affect transactions.
        """
        self.require_writable()
        self.require_joined()
        if self.default_waits & REPLICA:
            self.require_in_sync()

    def require_in_sync(self) -> None:
        """Raises Problem (503) while fewer copies are in sync than ``minInSyncReplicas``.

        As RocketMQ's IN_SYNC_REPLICAS_NOT_ENOUGH, for a message whose reply waits for a replica.
        """
        leader = self.replica.leader
        if not leader.has_enough_in_sync:
            least = self.settings.min_in_sync_replicas
            raise Problem(
                problems.IN_SYNC_REPLICAS_NOT_ENOUGH,
                f"{leader.in_sync} copies are in sync, this one included; at least {least} "
                "must be (minInSyncReplicas)",
                extra={"inSync": leader.in_sync},
            )

    @property
    def takes_puts(self) -> bool:
        """Whether ``require_puts`` and ``require_in_sync`` would return, unless the store refuses
        puts."""
        store, state = self._store, self._initial_state
        return (
            store is not None
            and store.write_pause.current is None
            and self.shards.joining.reason is None
            and (state is None or state.reason is None)
            and self.replica.refusal is None
            and not self.failure.done()
            and self.replica.leader.has_enough_in_sync
        )

    def require_puts(self) -> None:
        """Raises Problem (503) while messages are refused."""
        self.require_writable()
        self.require_joined()
        pause = self.store.write_pause.current
        if pause is not None:
            raise Problem(problems.WRITES_PAUSED, pause.reason, extra={"sinceMs": pause.since_ms})

    async def start(self) -> None:
        """Open the store, read-only while the disk refuses, and retry that in the background."""
        self._watcher = self._loop.create_task(self.observer.run())
        self.shards.start()
        if not await self._try_to_open():
            self._retrying = self._loop.create_task(self._open_later())

    async def _try_to_open(self) -> bool:
        """Open the store for writing. Otherwise open it read-only and return False."""
        before = self.opening.refusal
        try:
            store = await asyncio.to_thread(self.opening.open)
        except (DiskRefuses, DataMissing) as error:
            if self._needs_new_view(before, error):
                log.error("the store can only be read", error=str(error))
                self._store = await asyncio.to_thread(self.opening.open_read_only_view, error)
                self.observer.note_view(self._store)
                await asyncio.to_thread(gc.collect)
            else:
                log.warning("the disk still refuses", error=str(error))
            return False
        finally:
            if self.opening.room_made is not None:
                self.events.publish(FORCED_DELETION, **self.opening.room_made)
        if store.receiver is None:
            await self.replica.start_leading(store)
        self._serve_from(store)
        if self._transactions is not None:
            await self._transactions.first_step()
        if before is not None:
            await asyncio.to_thread(gc.collect)
        return True

    def _needs_new_view(self, before: StorageError | None, error: StorageError) -> bool:
        """Return whether readers need another view, since the present one keeps deleted files."""
        is_same = type(before) is type(error) and not isinstance(error, DataMissing)
        return not is_same or self.opening.room_made is not None

    async def _open_later(self) -> None:
        """Retry at growing intervals until the disk works.

        If data is missing, retry once it was restored or its loss accepted.
        """
        try:
            while not await self.opening.pause(self._shutting_down):
                if await self._try_to_open():
                    return
        except (StorageError, ConfigurationError) as error:
            self.fail(error)

    def _serve_from(self, store: MessageStore) -> None:
        """Serve all later requests from this store. Running requests keep the view served before.

        The parts of that view refer to each other. Therefore its maps, which keep the blocks of
        deleted segments in use, are freed by a garbage collection.
        """
        timeout_s = store.config.sync_flush_timeout / 1000
        self._default_waits = None
        self._durability = DurabilityWaiter(store.flush, timeout_s)
        if store.commits is not None:
            self.commits = DurabilityWaiter(store.commits, timeout_s, place="in the page cache")
        settings = self.settings
        leader, slaves_s = self.replica.leader, settings.slave_timeout / 1000
        behind_max = settings.ha_slave_fallbehind_max
        replicas = ReplicaWaiter(leader.connections, slaves_s, behind_max, leader.acknowledged)
        self._changes = ReplicaWaiter(
            leader.connections, slaves_s, sys.maxsize, leader.tables_acknowledged
        )
        is_elected = settings.election_lease is not None
        leads = (lambda: self.replica.leads) if is_elected else None
        self._waiters = reply_waiters(self._durability, replicas, leads)
        self._store, self._retrying = store, None
        if store.receiver is None:
            self._lead(store)
        else:
            self.replica.start_following(store)
        self.observer.note_opened(store)
        self.metrics.watch(store)
        self._note_address(store)
        status = store.status()
        log.info(
            "store open",
            path=status.root,
            min_offset=status.min_offset,
            max_offset=status.max_offset,
            format=status.format,
        )

    def _lead(self, store: MessageStore) -> None:
        """Start what changes the store besides its clients: it takes their changes."""
        self.key_ownership.serve(store)
        self._initial_state = InitialState(self.shards, store, self._own_token)
        self._copying_state = self._loop.create_task(self._initial_state.run(self.topics.clear))
        self._transactions = self._begin_transactions(store)
        self._consumers = SharedConsumers(
            *(store, self.seams, self.settings.shard, self.api.limits.polls),
            self._note_failure,
        )

    async def retire(self) -> None:
        """Hand the lead of the shard over, if this replica has it."""
        await self.replica.retire()

    @property
    def open_store(self) -> MessageStore | None:
        """The store, or None while it is not open."""
        return self._store

    @property
    def is_shutting_down(self) -> bool:
        """Whether the shutdown has begun."""
        return self._shutting_down.is_set()

    async def reopen(self, store: MessageStore) -> None:
        """Close the store, and open it again in another role. Raises StorageError."""
        self._store = None
        self.key_ownership.serve(None)
        try:
            await asyncio.to_thread(store.close)
            if not await self._try_to_open():
                self._retrying = self._loop.create_task(self._open_later())
        except (StorageError, ConfigurationError) as error:  # the port for slaves is in use
            self.fail(error)
            raise

    def _begin_transactions(self, store: MessageStore) -> ShardTransactions:
        waits = self.default_waits
        return ShardTransactions(
            *(store, self.seams, self.settings, self.producers),
            settle=partial(self.await_durability, waits=waits) if waits or self.commits else None,
            on_append=self.metrics.count_transaction_append,
            failed=self._note_failure,
        )

    def _note_address(self, store: MessageStore) -> None:
        """Note this process's address in the store directory, where query and jobs find it.

        A failure is logged only, since jobs also take the address as an option.
        """
        note = WriterNote(url=self._own_url(), pid=os.getpid())
        try:
            put_writer_note(self.seams.files, store.paths, note)
        except OSError as error:
            log.warning("the address of this process cannot be noted", error=str(error))

    def _own_url(self) -> str:
        """Return the URL at which processes of this machine reach this one."""
        scheme = "http" if self.settings.tls_cert is None else "https"
        host, _, port = self.address.rpartition(":")
        if ip_address(host.strip("[]")).is_unspecified:
            host = "[::1]" if ":" in host else "127.0.0.1"
        return f"{scheme}://{host}:{port}"

    def interrupt(self) -> None:
        """Begin the shutdown: end streams of events and the planning of checks.

        Requests that wait for a group commit still finish.
        """
        self._shutting_down.set()
        if self._store is not None:
            self.observer.note_closing(self._store)
        if self._transactions is not None:
            self._transactions.end()
        if self._consumers is not None:
            self._consumers.end()
        self.events.end()

    async def stop(self) -> None:
        """Stop all tasks and close the store."""
        self._shutting_down.set()
        if self._watcher is not None:
            self._watcher.cancel()
        if self._retrying is not None:
            await self._retrying
        if self._copying_state is not None:
            self._copying_state.cancel()
            await asyncio.wait({self._copying_state})
        await self.shards.stop()
        await self.replica.stop()
        if self._transactions is not None:
            await self._transactions.stop()
        if self._consumers is not None:
            await self._consumers.stop()
        self.key_ownership.serve(None)
        store, self._store = self._store, None
        if store is not None:
            await asyncio.to_thread(self._close, store)
        await self.replica.release()

    def _close(self, store: MessageStore) -> None:
        store.close()
        if self._durability is not None:  # else it was opened read-only
            with contextlib.suppress(OSError):
                remove_writer_note(self.seams.files, store.paths)

    def _note_progress(self, progress: Progress) -> None:
        """Note the progress of recovery. Called from the thread that opens the store."""
        self._recovery = progress
        self.observer.note_progress(progress)

    def _note_failure(self, error: BaseException) -> None:
        """Note a failure that ends the process. Thread-safe."""
        self._loop.call_soon_threadsafe(self.fail, error)

    def fail(self, error: BaseException) -> None:
        """Note a failure that ends the process. Call it on the event loop."""
        if not self.failure.done():
            self.events.publish("failed", reason=str(error))
            self.failure.set_result(error)

    def _follower(self) -> Follower | None:
        following = self.replica.following
        return None if following is None else following.follower

    def _progress(self) -> dict[str, Any]:
        progress = self._recovery
        if progress is None:
            return {}
        return {"stage": progress.stage, "done": progress.done, "total": progress.total}

    def _remark(self) -> str | None:
        trouble = None if self._store is None else self._store.index_trouble
        if trouble is None and self._transactions is not None:
            trouble = self._transactions.engine.trouble
        return trouble or self.replica.lack

    def _not_serving_reason(self) -> str | None:
        if self._store is None:
            return "the store is not open"
        if (elected := self.replica.elected) is not None and not elected.is_in_sync:
            return elected.trouble or "this replica is not in sync"
        return self._not_joined_reason()

    def _not_joined_reason(self) -> str | None:
        copying = None if self._initial_state is None else self._initial_state.reason
        return self.shards.joining.reason or copying

    def _not_ready_reason(self) -> str | None:
        if (why := self.replica.refusal) is not None:
            return why
        if self._store is not None and (refusal := self._store.put_refusal) is not None:
            return refusal.detail
        return self._not_serving_reason()
