"""Types of problems (RFC 9457): every error that a service replies with, in one table.

``type`` is ``urn:mqstore:problem:NAME``: stable, and the same in every service.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

CONTENT_TYPE: Final = "application/problem+json"
TYPE_PREFIX: Final = "urn:mqstore:problem:"


@dataclass(frozen=True, slots=True)
class ProblemType:
    """One kind of error: its stable name, HTTP status, and when it is answered."""

    name: str
    status: int
    title: str
    when: str
    retry_after_s: int | None = None
    """Sent as Retry-After: the same request may succeed later."""

    @property
    def urn(self) -> str:
        return TYPE_PREFIX + self.name


REGISTRY: Final[dict[str, ProblemType]] = {}


def _register(
    name: str, status: int, title: str, when: str, retry_after_s: int | None = None
) -> ProblemType:
    problem = ProblemType(name, status, title, when, retry_after_s)
    REGISTRY[name] = problem
    return problem


BAD_JSON = _register("bad-json", 400, "The body is no JSON", "The body cannot be parsed.")
BAD_PARAMETER = _register(
    "bad-parameter", 400, "A parameter is wrong", "A path or query parameter is missing or wrong."
)
BAD_CURSOR = _register(
    "bad-cursor", 400, "The cursor is wrong", "A cursor of another query, or changed on its way."
)
BAD_FILTER = _register(
    "bad-filter",
    400,
    "The filter cannot be understood",
    "`detail` says where, and `column`.",
)
BAD_MESSAGE_ID = _register(
    "bad-message-id",
    400,
    "The id is wrong",
    "Neither an offset message id (32 or 56 hex characters) nor a unique key with its topic.",
)
SHARD_NEEDED = _register(
    "shard-needed",
    400,
    "There are several shards",
    "A queue is of one shard: name it, `?shard=`; `shards` lists them.",
)
UNAUTHENTICATED = _register(
    "unauthenticated", 401, "No valid token", "Send `Authorization: Bearer TOKEN`."
)
FORBIDDEN = _register(
    "forbidden",
    403,
    "The token's role does not allow this",
    "`detail` names the role that is needed.",
)
NOT_FOUND = _register("not-found", 404, "There is nothing here", "No such path.")
TOPIC_UNKNOWN = _register("topic-unknown", 404, "No such topic", "The topic was never created.")
QUEUE_UNKNOWN = _register("queue-unknown", 404, "No such queue", "The topic has no such queue.")
GROUP_UNKNOWN = _register(
    "group-unknown", 404, "No such group", "It was not created, and has committed nothing."
)
SHARD_UNKNOWN = _register(
    "shard-unknown", 404, "No such shard", "It is not among `shards`, which there shall be."
)
SUBSCRIPTION_UNKNOWN = _register(
    "subscription-unknown", 404, "No such subscription", "It was never registered, or has ended."
)
PIN_UNKNOWN = _register(
    "pin-unknown", 404, "No such pin", "It was never put, or its lease has ended."
)
QUARANTINE_ENTRY_UNKNOWN = _register(
    "quarantine-entry-unknown", 404, "No such entry", "The quarantine has no entry of that name."
)
TRANSACTION_UNKNOWN = _register(
    "transaction-unknown", 404, "No such transaction", "It was never begun, or is long forgotten."
)
TRANSACTION_DECIDED = _register(
    "transaction-decided",
    409,
    "The transaction was decided otherwise",
    "`decision`, `decidedAt` and `why` tell it.",
)
TRANSACTION_GONE = _register(
    "transaction-gone",
    410,
    "The half message cannot be read any more",
    "It is damaged or expired; roll the transaction back.",
)
PRODUCER_UNKNOWN = _register(
    "producer-unknown", 404, "No such producer", "It is not registered (any more)."
)
CALLBACK_REFUSED = _register(
    "callback-refused", 403, "This address may not be called", "`detail` names the rule."
)
MESSAGE_UNKNOWN = _register(
    "message-unknown", 404, "No such message", "No record begins at that offset, or none matches."
)
SEGMENT_UNKNOWN = _register(
    "segment-unknown", 404, "No such segment", "No file of the log has that name."
)
OFFSET_INSIDE_MESSAGE = _register(
    "offset-inside-message",
    404,
    "The offset is no message's begin",
    "It lies inside another message, which `holder` names by its offset.",
)
METHOD_NOT_ALLOWED = _register(
    "method-not-allowed", 405, "The path has no such method", "`Allow` lists what it has."
)
REQUEST_TIMEOUT = _register(
    "request-timeout", 408, "The request came too slowly", "Its body was not there in time."
)
PIN_REFUSED = _register(
    "pin-refused", 409, "The range cannot be pinned", "It is not there any more, or too many pins."
)
INDEX_REBUILD_UNKNOWN = _register(
    "index-rebuild-unknown",
    404,
    "No such index rebuild",
    "It was never begun, or has ended: its lease lapsed, or it was published or given up.",
)
INDEX_REBUILD_RUNNING = _register(
    "index-rebuild-running",
    409,
    "The index is being rebuilt already",
    "`running` says by whom, since when, and when the lease lapses.",
)
INDEX_REBUILD_REFUSED = _register(
    "index-rebuild-refused",
    409,
    "Not possible now, or not beside a writer",
    "`detail` says what is missing; other sizes or formats are for a store at rest only.",
)
INDEX_REBUILD_INVALID = _register(
    "index-rebuild-invalid",
    422,
    "The plan or the items cannot be of this rebuild",
    "Nothing of them counts.",
)
ARCHIVE_REFUSED = _register(
    "archive-refused",
    409,
    "The archive cannot be there",
    "Behind the log's end, before what was said, or retention waits for another archive.",
)
OFFSET_REFUSED = _register(
    "offset-refused",
    409,
    "The offset cannot be committed",
    "Beyond the queue's end, or before the committed one.",
)
TOPIC_NOT_WRITABLE = _register(
    "topic-not-writable", 409, "The topic takes no messages", "Its perm has no write bit."
)
UNIQUE_KEY_TAKEN = _register(
    "unique-key-taken",
    409,
    "The unique key is another message's",
    "A message with another body was stored under it a short time ago, or another transaction was "
    "begun under it; nothing was stored.",
)
MESSAGE_EXPIRED = _register(
    "message-expired", 410, "The message has expired", "Retention deleted it."
)
MESSAGE_LOST = _register(
    "message-lost",
    410,
    "The message was damaged beyond reading",
    "Recovery found it unreadable and keeps its bytes in quarantine.",
)
SEGMENT_EXPIRED = _register(
    "segment-expired", 410, "The segment has expired", "Retention deleted it; a pin keeps one."
)
EPOCH_CHANGED = _register(
    "epoch-changed",
    412,
    "The log may have changed",
    "A recovery has begun another epoch since: read from the beginning.",
)
BODY_TOO_LARGE = _register(
    "body-too-large", 413, "The request is too large", "Body, batch or message over its limit."
)
UNSUPPORTED_MEDIA_TYPE = _register(
    "unsupported-media-type", 415, "The content type is not read here", "`detail` lists what is."
)
RANGE_NOT_SATISFIABLE = _register(
    "range-not-satisfiable",
    416,
    "There is nothing in that range",
    "`Content-Range` says how many bytes there are.",
)
WRONG_SHARD = _register(
    "wrong-shard",
    421,
    "The request is for another shard",
    "Nothing was done; `shard` and `url` say where to send it.",
)
MISDIRECTED = _register(
    "misdirected",
    421,
    "The request was meant for another host",
    "Without tokens, only loopback names.",
)
BODY_INVALID = _register(
    "body-invalid", 422, "The body does not fit the schema", "A field is missing or wrong."
)
TOPIC_INVALID = _register(
    "topic-invalid", 422, "The topic's name is not allowed", "Reserved, too long, or no file name."
)
TOPIC_CONFIG = _register(
    "topic-config-invalid", 422, "No topic can be so", "Its queue counts, perm or attributes."
)
GROUP_INVALID = _register(
    "group-invalid", 422, "The group's name is not allowed", "Too long, or RocketMQ's own."
)
PROPERTY_INVALID = _register(
    "property-invalid", 422, "A property is not allowed", "Reserved, or with a separator inside."
)
MESSAGE_INVALID = _register(
    "message-invalid", 422, "The message cannot be stored", "A field that no record can hold."
)
BODY_NOT_INFLATABLE = _register(
    "body-not-inflatable",
    422,
    "The stored body cannot be inflated",
    "It is no compressed data, or longer than is allowed: take it without `inflate`.",
)
CLIENT_OVER_SHARE = _register(
    "client-over-share",
    429,
    "Too much at one time from one client",
    "This address has its share of connections, requests or bytes.",
    retry_after_s=1,
)
CHECKSUM_MISMATCH = _register(
    "checksum-mismatch",
    422,
    "The body is not what its checksum says",
    "It changed on its way, or the checksum is of something else; nothing was stored.",
)
HEADERS_TOO_LARGE = _register(
    "headers-too-large", 431, "The headers are too large", "Over maxHeaderSize."
)
INTERNAL = _register("internal", 500, "A defect of ours", "The logs hold it under requestId.")
MESSAGE_DAMAGED = _register(
    "message-damaged", 500, "The stored message is damaged", "`detail` names the defect and place."
)
MESSAGE_SUSPECT = _register(
    "message-suspect",
    500,
    "The stored message may be another than was written",
    "`detail` names the bytes of the log that changed on the disk.",
)
OVERLOADED = _register(
    "overloaded", 503, "Too much at one time", "Try again a little later.", retry_after_s=1
)
STORE_NOT_READY = _register(
    "store-not-ready",
    503,
    "The store is not ready",
    "Starting, not yet recovered, or not yet known to the other shards.",
    1,
)
SHUTTING_DOWN = _register(
    "shutting-down", 503, "The service is ending", "Another process may take its place.", 5
)
SHARD_UNREACHABLE = _register(
    "shard-unreachable",
    503,
    "The shard does not answer",
    "What was asked for is on that one; the others go on.",
    1,
)
COORDINATOR_NOT_READY = _register(
    "coordinator-not-ready",
    503,
    "Transactions wait",
    "The half messages are being read, or no shard answers; `detail` says why.",
    1,
)
STORE_NOT_WRITABLE = _register(
    "store-not-writable", 503, "The store takes no messages", "`detail` says why.", 5
)
STORE_READ_ONLY = _register(
    "store-read-only", 503, "The store may only be read", "`detail` names what needs a person.", 30
)
DISK_REFUSES = _register(
    "disk-refuses",
    503,
    "The disk refused the recovery",
    "What is there can be read; the service tries again by itself, next after Retry-After.",
    5,
)
WRITES_PAUSED = _register(
    "writes-paused", 503, "Writes are paused", "An administrator did; `detail` has the reason.", 5
)
STORE_FAILED = _register(
    "store-failed", 503, "The disk failed", "Nothing is acknowledged; the process ends.", 5
)
PAGE_CACHE_BUSY = _register(
    "page-cache-busy", 503, "The page cache is busy", "As RocketMQ's OS_PAGECACHE_BUSY.", 1
)
FLUSH_TIMEOUT = _register(
    "flush-timeout",
    504,
    "Stored, but not known to be on disk",
    "It can be read; of a produce `messages` says where, as in the answer of 201.",
)
STAGING_DAMAGED = _register(
    "staging-damaged",
    500,
    "The new index files are not what was written",
    "Nothing was published; the disk needs a look.",
)
REPAIR_REFUSED = _register(
    "repair-refused",
    503,
    "The log cannot be repaired now",
    "Nothing was changed; `detail` says what the disk refuses.",
)
DISK_FULL = _register(
    "disk-full", 507, "The disk is full", "No room for messages; `disk` may have the numbers.", 30
)

TOO_MANY_FILES = _register(
    "too-many-files",
    503,
    "Too many open files",
    "A file for messages cannot be opened: raise the process's limit of open files.",
    5,
)
DISK_ERROR = _register(
    "disk-error",
    503,
    "The disk refuses a file",
    "A file for messages cannot be made, and not for want of room; `detail` has the error.",
    5,
)

ANY_ROUTE: Final = (BAD_PARAMETER, HEADERS_TOO_LARGE, INTERNAL)
LIMITED: Final = (CLIENT_OVER_SHARE, OVERLOADED)
"""Of every route but health and metrics."""
GUARDED: Final = (
    UNAUTHENTICATED,
    FORBIDDEN,
    MISDIRECTED,
    STORE_NOT_READY,
    SHUTTING_DOWN,
    *LIMITED,
)
"""Of every route that a token may be needed for."""
OF_SHARDS: Final = (SHARD_UNKNOWN, SHARD_UNREACHABLE, WRONG_SHARD)
"""Of every route that takes `?shard=`."""
READ_ONLY_KINDS: Final = (STORE_READ_ONLY, DISK_REFUSES)
"""Why a whole store takes no change."""
FILE_KINDS: Final = (DISK_FULL, TOO_MANY_FILES, DISK_ERROR)
"""Why a file that messages need cannot be made."""
WITH_BODY: Final = (
    BAD_JSON,
    BAD_PARAMETER,
    REQUEST_TIMEOUT,
    BODY_TOO_LARGE,
    UNSUPPORTED_MEDIA_TYPE,
    BODY_INVALID,
)
