"""Routes of replication: the store's role, and the promotion of a follower."""

from __future__ import annotations

from mqstore.service.app import Api
from mqstore.service.endpoint import Endpoint
from mqstore.wire import replication as operations
from mqstore.wire.replication import Following, Replication
from mqstore.writer.service import WriterService


class ReplicationRoutes:
    """Reports how far a follower is behind its leader, and promotes it."""

    def __init__(self, service: WriterService) -> None:
        self._service = service

    def add(self, api: Api) -> None:
        """Register the routes with ``api``."""
        Endpoint(operations.REPLICATION, self.replication).add(api)
        Endpoint(operations.PROMOTE, self.promote, is_guarded=False).add(api)

    async def replication(self) -> Replication:
        """Whether the store leads or follows; of a follower, how far its copy is. The end of a
        broker's log is read every 10 s, where `masterAddress` names it."""
        store, found = self._service.store, self._service.following
        if found is None or store.receiver is None:
            return Replication(role="leader", following=None)
        follower, tables = found.follower, found.tables
        link = follower.link
        return Replication(
            role="follower",
            following=Following(
                leader=link.leader,
                state=link.state.value,
                reason=link.reason,
                since_ms=link.since_ms,
                received_offset=store.receiver.end,
                durable_offset=store.log.flushed_offset,
                leader_offset=max(link.leader_end, store.receiver.end),
                lag_bytes=follower.lag,
                damaged_records=store.receiver.damaged,
                tables_copied_at_ms=None if tables is None else tables.copied_at_ms,
                tables_reason=None if tables is None else tables.reason,
            ),
        )

    async def promote(self) -> Replication:
        """Stops following the leader and opens the store for writing, with all that was received.
        Stop the leader's producers before, and wait until `lagBytes` is 0. No request is served
        for a moment. A store that leads already is not changed. A promoted store never follows
        again."""
        await self._service.promote()
        return await self.replication()
