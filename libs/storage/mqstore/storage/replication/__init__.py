"""Replication: sessions of a leader and its followers, as bytes; the copies in sync; elections.

Used by store-writer, which has the sockets, threads and clocks; ``make simulate-shard`` has
others. ``MessageStore.receiver`` and ``MessageStore.table_copies``, which a ``FollowerSession``
uses, are there when the store was opened with ``StoreOptions.leader``.
"""

from mqstore.storage.replication.connections import Connections
from mqstore.storage.replication.election import (
    DURATION_S,
    Addresses,
    Candidate,
    ElectionError,
    Lease,
    LeaseConflict,
    LeaseStore,
    LeaseUnavailable,
    Margins,
)
from mqstore.storage.replication.follower_session import (
    FollowerOptions,
    FollowerSession,
    LogDiverged,
)
from mqstore.storage.replication.ha_frames import (
    FETCH_SIZE_MAX,
    Frame,
    FrameCorrupt,
    FrameInvalid,
)
from mqstore.storage.replication.ha_proof import NONCE_SIZE, Keys, ProofRefused
from mqstore.storage.replication.in_sync import InSyncSet
from mqstore.storage.replication.in_sync_look import InSyncLook
from mqstore.storage.replication.leader_session import (
    LeaderOptions,
    LeaderSession,
    Peer,
    Reading,
    SlaveRefused,
)
from mqstore.storage.replication.receiver import LogReceiver
from mqstore.storage.replication.roles import (
    Ended,
    Following,
    Leading,
    Role,
    Waiting,
    choose_successor,
    next_role,
    why_not_take,
)
from mqstore.storage.replication.stores import Step
from mqstore.storage.replication.table_copies import TableCopies

__all__ = [
    "DURATION_S",
    "FETCH_SIZE_MAX",
    "NONCE_SIZE",
    "Addresses",
    "Candidate",
    "Connections",
    "ElectionError",
    "Ended",
    "FollowerOptions",
    "FollowerSession",
    "Following",
    "Frame",
    "FrameCorrupt",
    "FrameInvalid",
    "InSyncLook",
    "InSyncSet",
    "Keys",
    "LeaderOptions",
    "LeaderSession",
    "Leading",
    "Lease",
    "LeaseConflict",
    "LeaseStore",
    "LeaseUnavailable",
    "LogDiverged",
    "LogReceiver",
    "Margins",
    "Peer",
    "ProofRefused",
    "Reading",
    "Role",
    "SlaveRefused",
    "Step",
    "TableCopies",
    "Waiting",
    "choose_successor",
    "next_role",
    "why_not_take",
]
