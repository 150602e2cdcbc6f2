"""The part of a store-writer in the replication of its shard: it leads, follows, or elects."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING

from mqstore.service import logs
from mqstore.service.ha_tls import HaTls
from mqstore.storage import MessageStore
from mqstore.storage.errors import RepairRefused, StorageError
from mqstore.storage.replication import Addresses, ElectionError, LogDiverged
from mqstore.storage.replication import Following as FollowingRole
from mqstore.storage.status import NEXT_EPOCH
from mqstore.writer.replication.elected import Elected, HandOverFailed, replica_name
from mqstore.writer.replication.follower import Divergence
from mqstore.writer.replication.following import Following
from mqstore.writer.replication.leader import Leader, wanted_replicas

if TYPE_CHECKING:
    from mqstore.writer.service import WriterService

log = logs.get(__name__)


class Replica:
    """Changes between the roles, and reopens the store for it. Used on one event loop."""

    def __init__(self, service: WriterService) -> None:
        """Raises ConfigurationError."""
        self._service = service
        self._settings = service.settings
        self.leader = Leader(service.settings, service.events, self._publish)
        self._tls = HaTls.of(service.settings)
        self.following: Following | None = None
        """Copies a leader's log and tables; None where the store leads, or no leader is known."""
        self.elected: Elected | None = None
        """Elects the leader among the replicas of this shard; None where settings name it."""
        self._loop = asyncio.get_running_loop()
        self._changing = asyncio.Lock()
        self._reopening: asyncio.Task[None] | None = None

    @property
    def refusal(self) -> str | None:
        """Why this replica takes no changes, as far as the election decides it; else None."""
        return None if self.elected is None else self.elected.why_refused

    @property
    def leads(self) -> bool:
        """Whether this replica may acknowledge messages."""
        return self.elected is None or self.elected.leads

    @property
    def lack(self) -> str | None:
        """Why a leader has fewer replicas in sync than its shard is to have; else None."""
        watch, settings = self.leader.watch, self._settings
        if watch is None or not self.leads:
            return None
        names, wanted = sorted(watch.copies.names), wanted_replicas(settings)
        if len(names) >= wanted:
            return None
        text = f"{len(names)} of {wanted} replicas are in sync: {', '.join(names)}"
        if len(names) == 1 and settings.broker_role == "SYNC_MASTER":
            text += "; replies to messages wait for another one (brokerRole=SYNC_MASTER): each is "
            text += "504 or 503, although the message may be stored here"
        return text

    async def start_leading(self, store: MessageStore) -> None:
        """Let other replicas copy the store, which takes messages from now on."""
        if self.elected is None or (lease := self.elected.lease) is None:
            await self.leader.start(store, self._settings.own_replica_name)
            return
        await self.leader.start(store, self.elected.name, lease.in_sync)

    def start_following(self, store: MessageStore) -> None:
        """Follow the leader of the settings, or the elected one once it is known."""
        settings = self._settings
        if settings.election_lease is None:
            assert settings.ha_master_address is not None
            self._follow(store, settings.ha_master_address, is_proof_needed=True)
        elif self.elected is None:
            self.elected = Elected(settings, store, self, self._service.events)
            self.elected.start()
        elif isinstance(role := self.elected.role, FollowingRole):
            self._follow(store, role.addresses.log, is_proof_needed=role.addresses.proves)

    async def stop(self) -> None:
        """Stop all tasks. The store is open still."""
        if self.elected is not None:
            await self.elected.stop()
        if self._reopening is not None:
            await asyncio.wait({self._reopening})
        if self.following is not None:
            await self.following.stop()
        await self.leader.stop()

    async def release(self) -> None:
        """Release the lease, once the store is closed."""
        if self.elected is not None:
            await self.elected.release()

    async def retire(self) -> None:
        """Hand the lead of the shard over, while requests are served still."""
        if self.elected is not None and self.elected.leads:
            try:
                await self.elected.hand_over(None)
            except (HandOverFailed, ElectionError) as error:
                log.warning("the lead was not handed over", reason=str(error))

    async def promote(self, epoch: int = NEXT_EPOCH) -> bool:
        """Stop following the leader, and open the store for writing, in an epoch that begins; False
        where it leads already.

        No request is served from the store meanwhile. Raises StorageError.
        """
        service = self._service
        async with self._changing:
            store = service.open_store
            if store is None or store.receiver is None:
                return False
            await self._stop_following()
            service.opening.lead(epoch)
            await service.reopen(store)
            service.events.publish("promoted", offset=store.log.max_offset)
            return True

    def fetch(
        self, offset: int, size: int, is_right: Callable[[bytes], bool]
    ) -> tuple[str, bytes] | None:
        """Fetch a range of the log from a follower in sync, as ``StoreOptions.fetch``. Called from
        threads of the store. Raises RepairRefused."""
        ha, watch = self.leader.ha, self.leader.watch
        followers = frozenset() if watch is None else watch.copies.names - {watch.copies.own}
        if not followers and (self.elected is not None or self.leader.may_have_followers):
            raise RepairRefused(
                "no other replica is in sync now, and one may have the bytes: repair again once "
                "one is"
            )
        if ha is None or not followers:
            return None
        fetch = ha.fetch(followers, offset, size, is_right)
        return asyncio.run_coroutine_threadsafe(fetch, self._loop).result()

    # see ``elected.Store``

    async def follow_leader(self, leader: Addresses) -> None:
        """See ``elected.Store``."""
        async with self._changing:
            store = self._service.open_store
            if store is not None and store.receiver is not None:
                await self._stop_following()
                self._follow(store, leader.log, is_proof_needed=leader.proves)

    async def lead(self, epoch: int) -> None:
        """See ``elected.Store``."""
        await self.promote(epoch)
        store = self._service.open_store
        if store is None or store.read_only_reason is not None:
            self.leave("the store does not open for writing: another replica is to lead")

    def acknowledged(self) -> dict[str, int]:
        """See ``elected.Store``."""
        connections = self.leader.connections
        slaves = [] if connections is None else connections.slaves
        return {each.name: each.acknowledged for each in slaves}

    def note_successor(self, follower: str | None) -> None:
        """See ``elected.Store``."""
        if self.leader.watch is not None:
            self.leader.watch.copies.successor = follower

    def has_all(self, follower: str) -> bool:
        """See ``elected.Store``."""
        store, connections = self._service.store, self.leader.connections
        store.table_feed.refresh()
        place = store.log.max_offset, store.table_feed.version
        return connections is not None and any(
            each.name == follower and each.acknowledged >= place[0] and each.tables >= place[1]
            for each in connections.slaves
        )

    def leave(self, reason: str) -> None:
        """See ``elected.Store``."""
        log.warning("the process ends", reason=reason)
        signal.raise_signal(signal.SIGTERM)

    def fail(self, error: BaseException) -> None:
        """See ``elected.Store``."""
        self._service.fail(error)

    async def _publish(self, names: frozenset[str]) -> None:
        if self.elected is not None:
            await self.elected.publish(names)

    def _follow(self, store: MessageStore, leader: str, *, is_proof_needed: bool) -> None:
        service, settings = self._service, self._settings
        elects = settings.election_lease is not None
        name = replica_name(settings, store) if elects else settings.own_replica_name
        self.following = Following(
            *(settings, store, service.durability, service.events, leader, name),
            *(self._tls, self.leader.admission.secret, service.followed, self._note_diverged),
            is_proof_needed=is_proof_needed,
        )

    async def _stop_following(self) -> None:
        if self.following is not None:
            await self.following.stop()
        self.following = None

    def _note_diverged(self, diverged: Divergence) -> None:
        self._reopening = asyncio.get_running_loop().create_task(self._reopen(diverged))

    async def _reopen(self, diverged: Divergence) -> None:
        """Open the store again, without what its leader lacks, and follow on."""
        service = self._service
        async with self._changing:
            following, store = self.following, service.open_store
            if following is None or store is None or service.is_shutting_down:
                return
            await self._stop_following()
            cut = None
            try:
                if isinstance(diverged, LogDiverged):
                    leader, epoch = following.follower.link.leader, diverged.epoch
                    cut = await asyncio.to_thread(
                        store.epochs.cut_at_opening, diverged.offset, leader, epoch
                    )
                await service.reopen(store)
            except (StorageError, OSError) as error:
                service.fail(error)
                return
            if cut is not None:
                figures = cut.model_dump(by_alias=True) | {"bytes": cut.end - cut.offset}
                log.error("a diverged tail of the log was cut into quarantine", **figures)
                service.events.publish("log-diverged", **figures)
