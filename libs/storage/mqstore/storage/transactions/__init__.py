"""Two-phase messages over a store: half messages, op records and decisions, as RocketMQ keeps them.

::

    engine        the face: begins, decisions, checks, and the background step
    begin, decide, check
    ledger        what memory holds of the log, and the one way to append to it
    loading       reads everything back, and finds what a crash cut short
    table         transactions in memory; recent: half messages stored a moment ago
    schedule      when which producers are to be checked
    log           the store as the engine sees it; records, halves: what is written
    story         a transaction as callers see it

The log is the truth: all that memory holds is read back from it. Used by store-writer.
"""

from mqstore.storage.transactions.begin import Begin, Begun
from mqstore.storage.transactions.check import CheckSent
from mqstore.storage.transactions.counts import Buckets
from mqstore.storage.transactions.decide import Decide, Decided
from mqstore.storage.transactions.engine import Taken, TransactionEngine
from mqstore.storage.transactions.halves import Verdict
from mqstore.storage.transactions.ledger import OnAppend
from mqstore.storage.transactions.records import NewRecord
from mqstore.storage.transactions.schedule import Rules
from mqstore.storage.transactions.story import State, StoredHalf, Story

__all__ = [
    "Begin",
    "Begun",
    "Buckets",
    "CheckSent",
    "Decide",
    "Decided",
    "NewRecord",
    "OnAppend",
    "Rules",
    "State",
    "StoredHalf",
    "Story",
    "Taken",
    "TransactionEngine",
    "Verdict",
]
