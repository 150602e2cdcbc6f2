"""Parameters and results of puts: messages, batches in RocketMQ's encoding, unique keys,
placements, the wait for a sync; and the import of messages into a store at rest.

Used by store-writer and ``mqstore store import``.
"""

from mqstore.storage._kernel import (
    EncodedBatch,
    LogEnd,
    NameRules,
    QueueTurns,
    Sends,
    placements_json,
)
from mqstore.storage.codec.batch import check_encoding, encode_batch
from mqstore.storage.codec.record import Message
from mqstore.storage.codec.unique_keys import UniqueKeys
from mqstore.storage.dedup.puts import Originals, Put, end_of
from mqstore.storage.log.commit_log import Placement
from mqstore.storage.log.requests import OffsetRequest, RequestService
from mqstore.storage.log.waiting import WaitingPlacement
from mqstore.storage.message_import import (
    ImportRefused,
    ImportRules,
    MessageImport,
    open_import,
)
from mqstore.storage.put_refusal import PutRefusal

__all__ = [
    "EncodedBatch",
    "ImportRefused",
    "ImportRules",
    "LogEnd",
    "Message",
    "MessageImport",
    "NameRules",
    "OffsetRequest",
    "Originals",
    "Placement",
    "Put",
    "PutRefusal",
    "QueueTurns",
    "RequestService",
    "Sends",
    "UniqueKeys",
    "WaitingPlacement",
    "check_encoding",
    "encode_batch",
    "end_of",
    "open_import",
    "placements_json",
]
