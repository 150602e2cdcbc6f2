"""A replica of a shard that elects its leader: follows the holder of the lease, or leads.

An ``ElectionThread`` keeps the lease. ``roles`` decides what the replica does, and this driver has
its store-writer do it. A leader that lost the lease ends its process, which starts again as a
follower.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from mqstore.service import logs
from mqstore.service.election_thread import ElectionThread, clock
from mqstore.service.events import Events
from mqstore.service.file_lease import FileLease
from mqstore.service.settings import Settings
from mqstore.service.sockets import format_address
from mqstore.storage import MessageStore
from mqstore.storage.replication import (
    Addresses,
    Candidate,
    ElectionError,
    Ended,
    Following,
    Leading,
    Lease,
    LeaseStore,
    Role,
    Waiting,
    choose_successor,
    next_role,
    why_not_take,
)

if TYPE_CHECKING:
    from mqstore.service.pod_roles import PodRoles

log = logs.get(__name__)

CATCH_UP_S: Final = 5.0
"""Seconds for which messages are refused while a successor receives the last ones, at most."""
POLL_S: Final = 0.01
MAKE_LEASE_AFTER_S: Final = 10.0
"""Seconds after which the founder of a shard creates a Lease that does not exist: helm creates it
after the pods, and refuses one that it finds."""


class HandOverFailed(Exception):
    """No follower could take over; the leader leads on."""


class Store(Protocol):
    """The store-writer that an election drives. Used on the event loop."""

    async def follow_leader(self, leader: Addresses) -> None:
        """Copy the log and the tables of the leader."""

    async def lead(self, epoch: int) -> None:
        """Open the store for writing, in an epoch that begins."""

    def acknowledged(self) -> dict[str, int]:
        """Return what each connected follower has acknowledged, by its name."""

    def note_successor(self, follower: str | None) -> None:
        """Note the follower to which the lead is being handed over, None without a hand-over: other
        copies that are behind leave the copies in sync soon."""

    def has_all(self, follower: str) -> bool:
        """Return whether a follower has acknowledged the log up to its end, and all tables."""

    def leave(self, reason: str) -> None:
        """End the process in an orderly way."""

    def fail(self, error: BaseException) -> None:
        """End the process after a failure."""


class Elected:
    """The part of a replica in the election of its shard. Used on one event loop."""

    def __init__(
        self, settings: Settings, store: MessageStore, service: Store, events: Events
    ) -> None:
        """``store`` is open as a follower. Raises ConfigurationError."""
        self.name = replica_name(settings, store)
        self.role: Role = Waiting()
        self.refusal: str | None = None
        """Why the leader takes no messages, during a hand-over."""
        self._newest_epoch = store.epochs.newest
        kind, _, self._lease_name = str(settings.election_lease).partition(":")
        self._make_lease_after_s = MAKE_LEASE_AFTER_S if kind == "kubernetes" else 0.0
        self._missing_since: float | None = None
        """When the lease was first seen not to exist."""
        self._reported: str | None = None
        """Why no leader is known, as it was last reported."""
        self._is_founder = settings.founding_replica == settings.own_replica_name
        self._candidate = Candidate(
            *(lease_store(settings), self.name, own_addresses(settings), self._why_not_take),
            *(settings.election_margins, clock),
            lambda: self._newest_epoch,
        )
        self._retry_s = settings.election_margins.retry_s
        self._service = service
        self._events = events
        self._loop = asyncio.get_running_loop()
        self._has_stepped = asyncio.Event()
        self._thread = ElectionThread(self._candidate, self._note_step)
        self._pods = pod_roles(settings)
        self._task: asyncio.Task[None] | None = None
        self._handing_over = asyncio.Lock()

    @property
    def lease(self) -> Lease | None:
        """The lease as it was last seen."""
        return self._candidate.lease

    @property
    def trouble(self) -> str | None:
        """Why this replica does not hold the lease."""
        return self._candidate.trouble

    @property
    def leads(self) -> bool:
        """Whether this replica leads: checked before each acknowledgement."""
        role = self.role
        return isinstance(role, Leading) and self._candidate.leads_in(role.epoch)

    @property
    def why_refused(self) -> str | None:
        """Why this replica takes no changes, or None."""
        if self.refusal is not None:
            return self.refusal
        role = self.role
        if isinstance(role, Following):
            return (
                f"this replica follows {role.leader}, the leader of its shard: send changes to "
                f"{role.addresses.url}"
            )
        if self.leads:
            return None
        why = self._reported
        text = "this replica does not lead its shard; no leader is known"
        return text if why is None else f"{text}: {why}"

    @property
    def is_in_sync(self) -> bool:
        """Whether this replica may take the lease."""
        lease = self._candidate.lease
        return lease is not None and self.name in lease.in_sync

    def start(self) -> None:
        """Take part in the election."""
        self._thread.start()
        self._task = self._loop.create_task(self._run())
        self._task.add_done_callback(self._note_end)

    async def stop(self) -> None:
        """Change the role no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def release(self) -> None:
        """Take no further part, once the store is closed, and release the lease."""
        await asyncio.to_thread(self._thread.stop)

    async def publish(self, in_sync: Collection[str]) -> None:
        """Make durable which replicas may take the lease. Raises ElectionError."""
        await asyncio.to_thread(self._candidate.publish, in_sync)

    async def hand_over(self, wanted: str | None) -> str:
        """Hand the lead over to ``wanted``, or to the follower that has most; returns its name.

        Messages are refused while it receives the last ones. A third replica that is behind leaves
        the copies in sync meanwhile. The process of a leader that has handed over ends. Raises
        HandOverFailed, ElectionError.
        """
        async with self._handing_over:
            if not self.leads:
                raise HandOverFailed("this replica does not lead")
            successor = self._choose(wanted)
            await asyncio.to_thread(self._candidate.name_successor, successor)
            self._service.note_successor(successor)
            try:
                await asyncio.sleep(self._retry_s)  # then the successor looks often
                self.refusal = f"the lead of this shard is handed over to {successor}"
                await self._await_acknowledged(successor)
                await asyncio.to_thread(self._candidate.release)
            except BaseException:
                self.refusal = None
                self._service.note_successor(None)
                with contextlib.suppress(ElectionError):
                    await asyncio.to_thread(self._candidate.name_successor, "")
                raise
            self._events.publish("handed-over", successor=successor)
            log.info("the lead was handed over", successor=successor)
        self.leave("the lead was handed over")
        return successor

    def leave(self, reason: str) -> None:
        """End the process, unless it ends already."""
        if not isinstance(self.role, Ended):
            self.role = Ended(reason)
            self._service.leave(reason)

    def _choose(self, wanted: str | None) -> str:
        lease = self._candidate.lease
        in_sync = () if lease is None else lease.in_sync
        try:
            return choose_successor(self._service.acknowledged(), in_sync, self.name, wanted)
        except ValueError as error:
            raise HandOverFailed(str(error)) from None

    async def _await_acknowledged(self, successor: str) -> None:
        service = self._service

        def is_complete() -> bool:
            lease = self._candidate.lease
            return lease is not None and successor in lease.in_sync and service.has_all(successor)

        if not await _until(is_complete, CATCH_UP_S):
            raise HandOverFailed(f"{successor} did not catch up within {CATCH_UP_S:g} s")

    def _why_not_take(self, lease: Lease | None) -> str | None:
        why = why_not_take(
            *(lease, self.name), is_founder=self._is_founder, newest_epoch=self._newest_epoch
        )
        return self._why_not_make() if lease is None and why is None else why

    def _why_not_make(self) -> str | None:
        """Return why this replica does not create the missing lease yet. Called by the thread of
        the election."""
        now = clock()
        self._missing_since = now if self._missing_since is None else self._missing_since
        if now - self._missing_since >= self._make_lease_after_s:
            return None
        return (
            f"the lease {self._lease_name} does not exist; this replica creates it when it has "
            f"been missing for {self._make_lease_after_s:g} s"
        )

    def _note_step(self) -> None:
        """Let the driver look at the lease. Called by the thread of the election."""
        self._loop.call_soon_threadsafe(self._has_stepped.set)

    def _note_end(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._service.fail(error)

    async def _run(self) -> None:
        while True:
            await self._has_stepped.wait()
            self._has_stepped.clear()
            candidate = self._candidate
            self._report_trouble()
            role = next_role(self.role, self.name, candidate.lease, leads=candidate.leads)
            if role != self.role:
                await self._take(role)
            elif self._pods is not None:
                await asyncio.to_thread(self._pods.retry)

    def _report_trouble(self) -> None:
        """Report why no leader is known, when it has changed: in log and events."""
        lease, candidate = self._candidate.lease, self._candidate
        is_known = lease is not None and lease.holder and not candidate.is_in_doubt
        trouble = None if is_known or candidate.leads else candidate.trouble
        if trouble != self._reported:
            self._reported = trouble
            if trouble is not None:
                log.warning("no leader of this shard is known", reason=trouble)
            self._events.publish("election", reason=trouble)

    async def _take(self, role: Role) -> None:
        log.info("role", role=type(role).__name__.lower(), epoch=getattr(role, "epoch", None))
        self._events.publish("role", role=type(role).__name__.lower())
        if isinstance(role, Following):
            self.role = role
            await self._service.follow_leader(role.addresses)
            await self._label(lambda pods: pods.follow)
        elif isinstance(role, Leading):
            await self._service.lead(role.epoch)
            self.role = role
            self._newest_epoch = role.epoch
            await self._label(lambda pods: pods.lead)
        elif isinstance(role, Ended):
            self.leave(role.reason)

    async def _label(self, method: Callable[[PodRoles], Callable[[], None]]) -> None:
        if self._pods is not None:
            await asyncio.to_thread(method(self._pods))


async def _until(is_so: Callable[[], bool], seconds: float) -> bool:
    """Wait until ``is_so``, for a limited time; return whether it is."""
    for _ in range(round(seconds / POLL_S)):
        if is_so():
            return True
        await asyncio.sleep(POLL_S)
    return is_so()


def replica_name(settings: Settings, store: MessageStore) -> str:
    """Return the name of a replica with its store: an empty volume under the name of a lost one is
    another replica, which has none of its messages."""
    return f"{settings.own_replica_name}/{store.store_id[:8]}"


def lease_store(settings: Settings) -> LeaseStore:
    """Return the lease of the settings. Raises ConfigurationError."""
    assert settings.election_lease is not None
    kind, _, name = settings.election_lease.partition(":")
    if kind == "file":
        return FileLease(Path(name))
    from mqstore.service.kube_lease import KubeLease  # its client takes a second to import

    return KubeLease(name, None)


def pod_roles(settings: Settings) -> PodRoles | None:
    """Return the labels of the shard's pods, where the settings name them."""
    pods = settings.replica_pods.split()
    if not pods:
        return None
    from mqstore.service.pod_roles import PodRoles  # its client takes a second to import

    return PodRoles(pods, settings.own_replica_name)


def own_addresses(settings: Settings) -> Addresses:
    """Return the addresses at which the other replicas reach this one."""
    host = settings.replica_host or settings.host
    scheme = "http" if settings.tls_cert is None else "https"
    return Addresses(
        url=f"{scheme}://{format_address((host, settings.writer_port))}",
        log=format_address((host, settings.ha_listen_port)),
        proves=settings.replica_secret_file is not None,
    )
