"""Routes of replication: the store's role, and the promotion of a follower."""

from __future__ import annotations

from mqstore.service.app import Api
from mqstore.service.endpoint import Endpoint
from mqstore.service.problems import SWITCHOVER_REFUSED, Problem
from mqstore.storage.replication import ElectionError
from mqstore.wire import replication as operations
from mqstore.wire.replication import (
    Election,
    Following,
    Leading,
    Replica,
    Replication,
    Switchover,
    SwitchoverSpec,
)
from mqstore.writer.replication.elected import HandOverFailed
from mqstore.writer.replication.following import Following as FollowingTasks
from mqstore.writer.replication.in_sync_watch import CopyState, InSyncWatch
from mqstore.writer.service import WriterService


class ReplicationRoutes:
    """Reports how far a follower is behind its leader, and promotes it."""

    def __init__(self, service: WriterService) -> None:
        self._service = service

    def add(self, api: Api) -> None:
        """Register the routes with ``api``."""
        Endpoint(operations.REPLICATION, self.replication).add(api)
        Endpoint(operations.PROMOTE, self.promote, is_guarded=False).add(api)
        Endpoint(operations.SWITCH_OVER, self.switch_over, is_guarded=False).add(api)

    async def replication(self) -> Replication:
        """Whether the store leads or follows; of a leader, its copies; of a follower, how far its
        copy is. The end of a broker's log is read every 10 s, where `masterAddress` names it."""
        replica, store = self._service.replica, self._service.store
        found, watch = replica.following, replica.leader.watch
        is_leader = store.receiver is None and replica.leads
        return Replication(
            role="leader" if is_leader else "follower",
            epoch=store.epochs.newest,
            following=None if found is None else self._following(found),
            leading=self._leading(watch) if is_leader and watch is not None else None,
            election=self._election(),
        )

    def _leading(self, watch: InSyncWatch) -> Leading:
        return Leading(
            end_offset=self._service.store.log.max_offset,
            confirmed_offset=watch.copies.confirmed,
            in_sync=tuple(sorted(watch.copies.names)),
            min_in_sync_replicas=self._service.settings.min_in_sync_replicas,
            replicas=tuple(_replica(each) for each in watch.states),
        )

    def _following(self, found: FollowingTasks) -> Following:
        store, follower = self._service.store, found.follower
        assert store.receiver is not None
        link = follower.link
        return Following(
            leader=link.leader,
            state=link.state.value,
            reason=link.reason,
            since_ms=link.since_ms,
            received_offset=store.receiver.end,
            durable_offset=store.log.flushed_offset,
            leader_offset=max(link.leader_end, store.receiver.end),
            lag_bytes=follower.lag,
            damaged_records=store.receiver.damaged,
            tables_copied_at_ms=follower.tables.at_ms,
            tables_reason=follower.tables.reason,
        )

    async def promote(self) -> Replication:
        """Stops following the leader and opens the store for writing, with all that was received.
        Stop the leader's producers before, and wait until `lagBytes` is 0. No request is served
        for a moment. A store that leads already is not changed. A promoted store never follows
        again."""
        if self._service.replica.elected is not None:
            raise Problem(
                SWITCHOVER_REFUSED,
                "the replicas of this shard elect their leader: use :switch-over at the leader",
            )
        await self._service.replica.promote()
        return await self.replication()

    async def switch_over(self, spec: SwitchoverSpec) -> Switchover:
        """Hands the lead over to another replica that is in sync. Messages are refused for less
        than a second, while that one receives the last ones and takes over. The process of the
        former leader ends, and starts again as a follower."""
        if (elected := self._service.replica.elected) is None:
            raise Problem(SWITCHOVER_REFUSED, "this shard has no electionLease")
        try:
            return Switchover(successor=await elected.hand_over(spec.to))
        except (HandOverFailed, ElectionError) as error:
            raise Problem(SWITCHOVER_REFUSED, str(error)) from error

    def _election(self) -> Election | None:
        if (elected := self._service.replica.elected) is None:
            return None
        lease = elected.lease
        return Election(
            name=elected.name,
            leader=None if lease is None else lease.holder or None,
            leader_url=None if lease is None else lease.addresses.url or None,
            epoch=0 if lease is None else lease.epoch,
            in_sync=() if lease is None else lease.in_sync,
            reason=None if elected.leads else elected.trouble,
        )


def _replica(state: CopyState) -> Replica:
    return Replica(
        name=state.name,
        address=state.address,
        kind="replica" if state.is_replica else "slave",
        acknowledged_offset=state.acknowledged,
        lag_bytes=state.lag_bytes,
        lag_ms=None if state.lag_s is None else round(state.lag_s * 1000),
        bytes_per_second=round(state.rate),
        in_sync=state.in_sync_since_ms is not None,
        connected_since_ms=state.since_ms,
        in_sync_since_ms=state.in_sync_since_ms,
    )
