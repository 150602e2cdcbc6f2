"""Problem details (RFC 9457) of the contract's types: to raise, and to document in OpenAPI.

``detail`` states what was wrong with this request; ``requestId`` is also in the logs.
"""

# ruff: noqa: F403, F405 -- services use the types as names of this module

from __future__ import annotations

import errno
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from mqstore.service.slave_errors import ChangeUnconfirmed, SlaveNotAvailable, SlaveTimeout
from mqstore.storage import errors
from mqstore.wire.problems import *


class Problem(Exception):
    """An error reply. Raise it in a handler; ``extra`` are members besides the standard ones."""

    def __init__(
        self,
        kind: ProblemType,
        detail: str,
        *,
        extra: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail
        self.extra = dict(extra or {})
        self.headers = dict(headers or {})
        if kind.retry_after_s is not None:
            self.headers.setdefault("retry-after", str(kind.retry_after_s))

    def body(self, request_id: str) -> bytes:
        """Encode the problem in JSON."""
        members = {
            "type": self.kind.urn,
            "title": self.kind.title,
            "status": self.kind.status,
            "detail": self.detail,
            "requestId": request_id,
        }
        return msgspec.json.encode(members | self.extra)


@dataclass(frozen=True, slots=True)
class _Rule:
    error: type[BaseException]
    kind: ProblemType
    extra: tuple[str, ...] = field(default=())


_RULES: Final = (
    _Rule(errors.MessageTooLarge, BODY_TOO_LARGE, ("status", "index")),
    _Rule(errors.PropertiesTooLong, PROPERTY_INVALID, ("status", "index")),
    _Rule(errors.TopicTooLong, TOPIC_INVALID, ("status", "index")),
    _Rule(errors.MessageInvalid, MESSAGE_INVALID, ("status", "index")),
    _Rule(errors.PageCacheBusy, PAGE_CACHE_BUSY, ("status",)),
    _Rule(errors.SegmentCreationFailed, PAGE_CACHE_BUSY, ("status", "reason", "numbers")),
    _Rule(errors.DiskFull, DISK_FULL, ("status", "reason", "numbers")),
    _Rule(errors.StoreNotWritable, STORE_NOT_WRITABLE, ("status", "reason")),
    _Rule(errors.UniqueKeyTaken, UNIQUE_KEY_TAKEN, ("status", "index")),
    _Rule(errors.PutRefused, STORE_NOT_WRITABLE, ("status",)),
    _Rule(ChangeUnconfirmed, CHANGE_UNCONFIRMED),
    _Rule(SlaveTimeout, FLUSH_SLAVE_TIMEOUT),
    _Rule(SlaveNotAvailable, SLAVE_NOT_AVAILABLE),
    _Rule(errors.FlushTimeout, FLUSH_TIMEOUT),
    _Rule(errors.StoreFailed, STORE_FAILED),
    _Rule(errors.StoreNotOpen, STORE_NOT_READY, ("state",)),
    _Rule(errors.StoreLocked, STORE_NOT_READY),
    _Rule(errors.TopicNameError, TOPIC_INVALID),
    _Rule(errors.TopicConfigError, TOPIC_CONFIG),
    _Rule(errors.GroupNameError, GROUP_INVALID),
    _Rule(errors.TopicNotReadable, TOPIC_NOT_READABLE),
    _Rule(errors.TopicNotWritable, TOPIC_NOT_WRITABLE),
    _Rule(errors.GroupDisabled, GROUP_DISABLED),
    _Rule(errors.GroupOrdered, GROUP_ORDERED),
    _Rule(errors.GroupShared, GROUP_SHARED),
    _Rule(errors.MemberUnknown, MEMBER_UNKNOWN),
    _Rule(errors.MembersFull, MEMBERS_FULL),
    _Rule(errors.LimitReached, LIMIT_REACHED, ("setting", "limit")),
    _Rule(errors.EpochStale, EPOCH_STALE),
    _Rule(errors.ReceiptInvalid, RECEIPT_INVALID),
    _Rule(errors.DeadLettersFull, DEAD_LETTERS_FULL),
    _Rule(errors.OffsetRefused, OFFSET_REFUSED),
    _Rule(errors.SubscriptionUnknown, SUBSCRIPTION_UNKNOWN),
    _Rule(errors.GroupUnknown, GROUP_UNKNOWN),
    _Rule(errors.PropertyError, PROPERTY_INVALID, ("index",)),
    _Rule(errors.MessageIdError, BAD_MESSAGE_ID),
    _Rule(errors.CursorError, BAD_CURSOR),
    _Rule(errors.KeyUnknown, MESSAGE_UNKNOWN, ("complete",)),
    _Rule(errors.PinUnknown, PIN_UNKNOWN),
    _Rule(errors.QuarantineEntryUnknown, QUARANTINE_ENTRY_UNKNOWN),
    _Rule(errors.TransactionsNotLoaded, COORDINATOR_NOT_READY),
    _Rule(errors.TransactionUnknown, TRANSACTION_UNKNOWN),
    _Rule(errors.TransactionGone, TRANSACTION_GONE),
    _Rule(errors.TransactionDecided, TRANSACTION_DECIDED, ("decision", "decided_at_ms", "why")),
    _Rule(errors.PinRefused, PIN_REFUSED),
    _Rule(errors.ArchiveRefused, ARCHIVE_REFUSED),
    _Rule(errors.IndexRebuildRunning, INDEX_REBUILD_RUNNING, ("running",)),
    _Rule(errors.IndexRebuildUnknown, INDEX_REBUILD_UNKNOWN),
    _Rule(errors.IndexRebuildRefused, INDEX_REBUILD_REFUSED),
    _Rule(errors.IndexRebuildInvalid, INDEX_REBUILD_INVALID),
    _Rule(errors.StagingDamaged, STAGING_DAMAGED),
    _Rule(errors.StagingFull, DISK_FULL, ("numbers",)),
    _Rule(errors.RepairRefused, REPAIR_REFUSED),
    _Rule(errors.TopicUnknown, TOPIC_UNKNOWN),
    _Rule(errors.QueueUnknown, QUEUE_UNKNOWN),
    _Rule(errors.RecordExpired, MESSAGE_EXPIRED),
    _Rule(errors.OffsetInsideRecord, OFFSET_INSIDE_MESSAGE, ("holder",)),
    _Rule(errors.OffsetOutOfRange, MESSAGE_UNKNOWN),
    _Rule(errors.FilterError, BAD_FILTER, ("column",)),
    _Rule(errors.SegmentUnknown, SEGMENT_UNKNOWN),
    _Rule(errors.SegmentExpired, SEGMENT_EXPIRED),
    _Rule(errors.QueryError, BAD_PARAMETER),
    _Rule(errors.BodyNotInflatable, BODY_NOT_INFLATABLE),
    _Rule(
        errors.RecordTombstone,
        MESSAGE_LOST,
        ("offset", "size", "topic", "queue_id", "queue_offset"),
    ),
    _Rule(errors.RecordBlockCorrupt, MESSAGE_SUSPECT, ("offset", "start", "stop")),
    _Rule(errors.RecordError, MESSAGE_DAMAGED, ("offset", "size", "defect")),
)
_BY_REASON: Final = {
    "closing": SHUTTING_DOWN,
    "read-only": STORE_READ_ONLY,
    "follower": STORE_READ_ONLY,
    "failed": STORE_FAILED,
    errors.Lack.NO_ROOM.value: DISK_FULL,
    errors.Lack.TOO_MANY_FILES.value: TOO_MANY_FILES,
    errors.Lack.DISK_ERROR.value: DISK_ERROR,
}
"""Problems by the reason of ``refuse_puts`` or the ``Lack`` of a put."""


def from_storage(error: errors.StorageError) -> Problem | None:
    """Return the problem for an error of the storage library; None for an unexpected one."""
    for rule in _RULES:
        if isinstance(error, rule.error):
            given = {_EXTRA_NAMES.get(name, name): getattr(error, name) for name in rule.extra}
            extra = {
                name: value
                for name, value in given.items()
                if value not in (None, {}) or name in _NULLABLE
            }
            kind = _BY_REASON.get(extra.get("reason", ""), rule.kind)
            return Problem(kind, str(error), extra=extra)
    return None


def from_system(error: OSError) -> Problem | None:
    """Return the problem for an error of the system: a full disk; None for another one."""
    if error.errno not in _NO_ROOM:
        return None
    return Problem(
        DISK_FULL,
        f"the disk has no room for this change ({error.strerror}), which may be lost at a restart:"
        " make room, then repeat it",
    )


_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_EXTRA_NAMES: Final = {
    "status": "putStatus",
    "numbers": "disk",
    "offset": "physicalOffset",
    "queue_id": "queueId",
    "queue_offset": "queueOffset",
    "start": "damagedFrom",
    "stop": "damagedTo",
    "decided_at_ms": "decidedAt",
}
_NULLABLE: Final = frozenset({"decidedAt"})
"""Members that a problem has even if they are null."""


def schema() -> dict[str, Any]:
    """Return the JSON schema of a problem, for OpenAPI."""
    return {
        "type": "object",
        "title": "Problem",
        "description": "RFC 9457 problem details.",
        "required": ["type", "title", "status", "detail", "requestId"],
        "properties": {
            "type": {"type": "string", "enum": [kind.urn for kind in REGISTRY.values()]},
            "title": {"type": "string"},
            "status": {"type": "integer"},
            "detail": {"type": "string", "description": "What was wrong with this request."},
            "requestId": {"type": "string", "description": "Also in the logs and X-Request-Id."},
            "putStatus": {"type": "string", "description": "RocketMQ's PutMessageStatus."},
            "index": {
                "type": "integer",
                "description": "Number, from 0, of the message of the request that was refused.",
            },
            "reason": {"type": "string"},
            "disk": {"type": "object", "description": "The fullest volume, in bytes and percent."},
            "state": {"type": "string"},
            "column": {"type": "integer", "description": "Of a filter expression, from 1."},
            "running": {
                "type": "object",
                "description": "`id`, `owner`, `sinceMs` and `expiresMs` of an index rebuild.",
            },
            "holder": {"type": "integer", "description": "Physical offset of a message."},
            "complete": {"type": "boolean", "description": "Whether everything was searched."},
            "decision": {"type": "string", "enum": ["commit", "rollback", "set-aside"]},
            "decidedAt": {"type": ["integer", "null"], "description": "Milliseconds."},
            "why": {"type": "string"},
            "messages": {
                "type": "array",
                "items": {"type": "object"},
                "description": "The places of the messages, as in a reply 201.",
            },
            "physicalOffset": {"type": "integer", "description": "Offset of the message."},
            "size": {"type": "integer", "description": "Bytes of its record; 0: unknown."},
            "shard": {"type": "integer", "description": "The shard that is meant."},
            "url": {"type": "string", "description": "Address of that shard."},
            "writable": {
                "type": "object",
                "description": "`shard` and `url` of a shard that accepts messages.",
            },
            "shards": {
                "description": "Numbers of all shards, or the shards requested and missing."
            },
            "defect": {"type": "string", "description": "What is wrong with the record."},
            "topic": {"type": "string"},
            "queueId": {"type": "integer"},
            "queueOffset": {"type": "integer"},
            "damagedFrom": {"type": "integer", "description": "First byte that may have changed."},
            "damagedTo": {"type": "integer"},
            "known": {
                "type": "object",
                "description": "Fields of a damaged record's header; any of them may be wrong.",
            },
        },
    }


def responses(*kinds: ProblemType) -> dict[int | str, dict[str, Any]]:
    """Return OpenAPI response objects for problems, one for each status."""
    by_status: dict[int | str, list[ProblemType]] = {}
    for kind in dict.fromkeys(kinds):
        by_status.setdefault(kind.status, []).append(kind)
    return {status: _response(each) for status, each in by_status.items()}


def add_responses(known: dict[str, Any], *kinds: ProblemType) -> None:
    """Add problems to an operation's OpenAPI responses, which have statuses as text keys."""
    for status, response in responses(*kinds).items():
        there = known.setdefault(str(status), response)
        examples = there["content"][CONTENT_TYPE]["examples"]
        for name, example in response["content"][CONTENT_TYPE]["examples"].items():
            if name not in examples:
                examples[name] = example
                kind = REGISTRY[name]
                there["description"] += f"\n\n`{name}`: {kind.title}. {kind.when}"


def _response(kinds: list[ProblemType]) -> dict[str, Any]:
    media = {
        "schema": {"$ref": "#/components/schemas/Problem"},
        "examples": {kind.name: {"value": _example(kind)} for kind in kinds},
    }
    texts = [f"`{kind.name}`: {kind.title}. {kind.when}" for kind in kinds]
    return {"description": "\n\n".join(texts), "content": {CONTENT_TYPE: media}}


def _example(kind: ProblemType) -> dict[str, Any]:
    members = {"type": kind.urn, "title": kind.title, "status": kind.status, "detail": kind.when}
    return members | {"requestId": "5f0c2a1e-1f"}
