"""Consumer groups whose consumers lease messages, and acknowledge or return them.

In a shared group any consumer gets any message. A group with members is ordered: each member holds
queues, whose messages it gets one after the other.

::

    engine         the interface: receive, acknowledge, return, extend, save
    dead_letters   resends and purges of dead letters
    group_states   counts of messages by state
    lease_table    the states of all groups, and their saving
    queue_leases   the state of one group in one queue
    receipts       the text that names a lease
    results        the arguments and results of the interface
    settling       the result of one receipt
    returned       messages for ``%RETRY%group`` and ``%DLQ%group``, as a broker makes them
    storing        stores those copies
    saved_leases   the file of what is acknowledged above a group's offsets
    ordered        the members of all ordered groups
    membership     the members of one, and the queues that they hold
    assignment     fair shares of queues
    saved_members  the file of members and epochs

The group's offset in consumerOffset.json is that of its lowest message that is not acknowledged, so
a broker continues there. Used by store-writer.
"""

from mqstore.storage.shared_groups.dead_letters import (
    DeadLetters,
    LetterResult,
    LetterResults,
    LetterStatus,
    PurgedQueue,
    ResendTarget,
)
from mqstore.storage.shared_groups.engine import SharedGroups
from mqstore.storage.shared_groups.group_states import PendingCounts
from mqstore.storage.shared_groups.ordered import MemberView
from mqstore.storage.shared_groups.pop_revival import PopRevival
from mqstore.storage.shared_groups.receipts import (
    QueueReceipts,
    Receipt,
    decode_by_queue,
    decode_receipts,
    texts_beside_offset,
)
from mqstore.storage.shared_groups.results import (
    Delivered,
    DeliveredBatch,
    ReceiptStatus,
    Received,
    Subscription,
)

__all__ = [
    "DeadLetters",
    "Delivered",
    "DeliveredBatch",
    "LetterResult",
    "LetterResults",
    "LetterStatus",
    "MemberView",
    "PendingCounts",
    "PopRevival",
    "PurgedQueue",
    "QueueReceipts",
    "Receipt",
    "ReceiptStatus",
    "Received",
    "ResendTarget",
    "SharedGroups",
    "Subscription",
    "decode_by_queue",
    "decode_receipts",
    "texts_beside_offset",
]
