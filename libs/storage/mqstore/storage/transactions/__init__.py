"""Two-phase messages over a store: half messages, op records and decisions, as RocketMQ keeps them.

::

    engine        the interface: begins, decisions, checks, and the background step
    begin, decide, check
    ledger        the transactions in memory, and the one way to append to the log
    loading       reads everything back, and finds interrupted begins and decisions
    plain         begins and decisions of one message, each in one call of the kernel
    table         transactions in memory
    schedule      the times at which producers are checked
    log           the store as the engine sees it; records, halves: the written records
    snapshot         a transaction as callers see it

The log is the only state: everything in memory is read back from it. Used by store-writer.
"""

from mqstore.storage._kernel import BeginReader, BeginRequest
from mqstore.storage.transactions.begin import Begin, BeginResult
from mqstore.storage.transactions.check import CheckSent
from mqstore.storage.transactions.decide import Decide, DecisionResult
from mqstore.storage.transactions.engine import Taken, TransactionEngine
from mqstore.storage.transactions.halves import Verdict
from mqstore.storage.transactions.ledger import OnAppend
from mqstore.storage.transactions.plain import begin_reader
from mqstore.storage.transactions.records import NewRecord
from mqstore.storage.transactions.schedule import Rules
from mqstore.storage.transactions.snapshot import State, StoredHalf, TransactionSnapshot

__all__ = [
    "Begin",
    "BeginReader",
    "BeginRequest",
    "BeginResult",
    "CheckSent",
    "Decide",
    "DecisionResult",
    "NewRecord",
    "OnAppend",
    "Rules",
    "State",
    "StoredHalf",
    "Taken",
    "TransactionEngine",
    "TransactionSnapshot",
    "Verdict",
    "begin_reader",
]
