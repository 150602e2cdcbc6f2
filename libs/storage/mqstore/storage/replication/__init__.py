"""Replication: what a leader sends of its tables, and what a follower makes of log and tables.

Used by store-writer. ``MessageStore.receiver`` and ``MessageStore.table_copies`` are there when the
store was opened with ``StoreOptions.leader``.
"""

from mqstore.storage.replication.receiver import LogReceiver
from mqstore.storage.replication.table_copies import TableCopies

__all__ = ["LogReceiver", "TableCopies"]
