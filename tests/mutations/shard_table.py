"""Mutations of the rules of a shard, each noticed by schedules of its replicas."""

from __future__ import annotations

from typing import Final

from tests.mutations.breaking import Mutation

_ELECTION: Final = "mqstore.storage.replication.election"
_ROLES: Final = "mqstore.storage.replication.roles"
_IN_SYNC: Final = "mqstore.storage.replication.in_sync"
_HISTORY: Final = "mqstore.storage.metadata.log_history"
_DELETED: Final = "mqstore.storage.metadata.deleted_topics"
_LOOK: Final = "mqstore.storage.replication.in_sync_look"
_LEADER: Final = "mqstore.storage.replication.leader_session"
_FOLLOWER: Final = "mqstore.storage.replication.follower_session"
_TABLES: Final = "mqstore.storage.replication.tables_sender"
_WAITS: Final = "mqstore.writer.waits"
_SCHEDULES: Final = (
    "tests/simulation/test_shard_schedules.py"
    "::test_what_is_acknowledged_as_replicated_is_kept_whatever_happens"
)


def _of(what: str, module: str, old: str, new: str) -> Mutation:
    return Mutation(what, module, old, new, _SCHEDULES)


_ELECTIONS: Final = (
    _of(
        "A leader goes on without its lease",
        _ELECTION,
        "        return self._clock() < self._leads_until\n",
        "        return self._leads_until > -math.inf\n",
    ),
    _of(
        "A lease is taken before it expires",
        _ELECTION,
        "            if not is_free and self._clock() < expires_at:\n",
        "            if False:\n",
    ),
    _of(
        "A replica that is not in sync takes the lease",
        _ROLES,
        "        if name in lease.in_sync:\n            return None\n",
        "        return None\n",
    ),
    _of(
        "A lease is taken in the epoch before",
        _ELECTION,
        "            epoch=max(seen.epoch, self._newest_epoch()) + 1,\n",
        "            epoch=max(1, seen.epoch),\n",
    ),
)

_ACKNOWLEDGEMENTS: Final = (
    _of(
        "The leader acknowledges before its sync",
        _WAITS,
        "        DISK | REPLICA: WaiterForBoth(disk, replica),\n",
        "        DISK | REPLICA: replica,\n",
    ),
    _of(
        "A follower reports before its sync",
        _FOLLOWER,
        "self._store.log.flushed_offset if self._options.syncs else self._receiver.end\n",
        "self._receiver.end\n",
    ),
    _of(
        "The nearest member confirms for all",
        _IN_SYNC,
        "        return min((self._acknowledged(name) for name in others), default=None)\n",
        "        return max((self._acknowledged(name) for name in others), default=None)\n",
    ),
    _of(
        "A set in sync counts before it is published",
        _IN_SYNC,
        "        self._in_doubt |= names\n",
        "        self.names = names | {self.own}\n",
    ),
    _of(
        "A copy that is behind joins",
        _IN_SYNC,
        "        return copy.acknowledged.covers(_Place(self._promised, self._replied_tables))\n",
        "        return True\n",
    ),
    _of(
        "A copy joins without what was acknowledged before it was confirmed",
        _IN_SYNC,
        "        return max(self.confirmed, self._replied)\n",
        "        return self.confirmed\n",
    ),
    _of(
        "A copy joins without the tables",
        _IN_SYNC,
        "        return copy.acknowledged.covers(_Place(self._promised, self._replied_tables))\n",
        "        return copy.acknowledged.log >= self._promised\n",
    ),
    _of(
        "The nearest member has the tables for all",
        _IN_SYNC,
        "        return min((self._tables_of(name) for name in others), default=",
        "        return max((self._tables_of(name) for name in others), default=",
    ),
    _of(
        "Tables are sent before the log that they refer to",
        _TABLES,
        "        if self._taken is None or self._taken[0] > min(sent, confirmed):\n",
        "        if self._taken is None or self._taken[0] > confirmed:\n",
    ),
    _of(
        "Tables are sent before what they refer to is confirmed",
        _TABLES,
        "        if self._taken is None or self._taken[0] > min(sent, confirmed):\n",
        "        if self._taken is None or self._taken[0] > sent:\n",
    ),
    _of(
        "A publication in doubt is not repeated",
        _IN_SYNC,
        "        return None if found == self.names and not self._in_doubt else found\n",
        "        return None if found == self.names else found\n",
    ),
    _of(
        "A new leader does not wait for the members of the set that was published",
        _IN_SYNC,
        "        self.names = frozenset({own, *members})\n",
        "        self.names = frozenset({own})\n",
    ),
    _of(
        "A publication that failed counts as made",
        _LOOK,
        "        if not is_published:\n            return\n",
        "",
    ),
    _of(
        "A leader that lost its lease acknowledges what waited",
        _WAITS,
        "        callback(LeadLost() if error is None and not self._leads() else error)\n",
        "        callback(error)\n",
    ),
)

_TAILS: Final = (
    _of(
        "No diverged tail is cut",
        _HISTORY,
        "    end = min(ends[shared[-1]], other[shared[-1]]) if shared else -1\n",
        "    end = follower.end if shared else -1\n",
    ),
    _of(
        "A follower does not look for a diverged tail",
        _FOLLOWER,
        "        if end < self._receiver.end:\n",
        "        if False:\n",
    ),
    _of(
        "An earlier leader is followed again",
        _HISTORY,
        "    if follower.newest > leader.newest:\n",
        "    if False:\n",
    ),
    _of(
        "A tail is cut up to the leader's end only",
        _HISTORY,
        "    end = min(ends[shared[-1]], other[shared[-1]]) if shared else -1\n",
        "    end = min(leader.end, follower.end) if shared else -1\n",
    ),
    _of(
        "A tail that is cut is not kept",
        "tests.simulation.shard.memory_log",
        "        self._quarantine += "
        "[record for at, record in self.records.items() if at >= offset]\n",
        "",
    ),
)

_DELETIONS: Final = (
    _of(
        "Deletions are not sent before the log that follows them",
        _LEADER,
        "        return Reading(found, self._tables.before_log() if self.is_replica else None)\n",
        "        return Reading(found)\n",
    ),
    _of(
        "A deletion that the leader lacks is kept",
        _DELETED,
        "    after = kept | leader.notes\n",
        "    after = before | leader.notes\n",
    ),
    _of(
        "Queues of a deletion that is withdrawn are not made again",
        _DELETED,
        "        is_incomplete |= present < former\n",
        "",
    ),
)

SHARD_MUTATIONS: Final = (*_ELECTIONS, *_ACKNOWLEDGEMENTS, *_TAILS, *_DELETIONS)
