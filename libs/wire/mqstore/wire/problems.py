"""Types of problems (RFC 9457): every error that a service replies with, in one table."""

# ruff: noqa: F403 -- the types of this module and of two others

from __future__ import annotations

from typing import Final

from mqstore.wire.group_problems import *
from mqstore.wire.problem_type import CONTENT_TYPE as CONTENT_TYPE
from mqstore.wire.problem_type import REGISTRY as REGISTRY
from mqstore.wire.problem_type import TYPE_PREFIX as TYPE_PREFIX
from mqstore.wire.problem_type import ProblemType as ProblemType
from mqstore.wire.problem_type import register
from mqstore.wire.transaction_problems import *

BAD_JSON = register(
    "bad-json",
    400,
    "The body is not JSON",
    "The body cannot be parsed as JSON.",
    "Send JSON in UTF-8; `detail` names the position.",
)
BAD_PARAMETER = register(
    "bad-parameter",
    400,
    "A parameter is invalid",
    "A path or query parameter is missing, wrong, unknown or repeated; a header is wrong; "
    "`Host` or `Authorization` is given twice; or a transfer coding is not `chunked`.",
    "Correct the parameter or header that `detail` names.",
)
BAD_CURSOR = register(
    "bad-cursor",
    400,
    "The cursor is invalid",
    "The cursor belongs to another query, or was changed.",
    "Repeat the query without a cursor.",
)
BAD_FILTER = register(
    "bad-filter",
    400,
    "The filter is invalid",
    "The filter cannot be parsed; `detail` and `column` name the position.",
    "Correct the expression at `column`; string operators such as CONTAINS need format 5.x.",
)
BAD_MESSAGE_ID = register(
    "bad-message-id",
    400,
    "The id is invalid",
    "Neither an offset message id (32 or 56 hex characters) nor a unique key with its topic.",
    "Give 32 or 56 hexadecimal digits, or add `?topic=`.",
)
SHARD_NEEDED = register(
    "shard-needed",
    400,
    "The shard must be named",
    "A queue belongs to one shard, and there are several; `shards` lists them.",
    "Add `?shard=`.",
)
UNAUTHENTICATED = register(
    "unauthenticated",
    401,
    "No valid token",
    "The request has no token, or one that is not configured.",
    "Send `Authorization: Bearer TOKEN` with a configured token.",
)
FORBIDDEN = register(
    "forbidden",
    403,
    "The token's role does not allow this",
    "`detail` names the role that is needed.",
    "Use a token of the role that `detail` names.",
)
NOT_FOUND = register(
    "not-found",
    404,
    "No such path",
    "The service has no such path.",
    "Compare the path with the list at `/docs`.",
)
TOPIC_UNKNOWN = register(
    "topic-unknown",
    404,
    "No such topic",
    "The topic was never created.",
    "Check the name, or create the topic: `PUT /v1/topics/TOPIC`.",
)
QUEUE_UNKNOWN = register(
    "queue-unknown",
    404,
    "No such queue",
    "The topic has no such queue.",
    "List the queues: `GET /v1/topics/TOPIC/queues`.",
)
SHARD_UNKNOWN = register(
    "shard-unknown",
    404,
    "No such shard",
    "The shard is not among the configured `shards`.",
    "Choose one of `shards`; `GET /v1/store` lists them too.",
)
SUBSCRIPTION_UNKNOWN = register(
    "subscription-unknown",
    404,
    "No such subscription",
    "The group has no subscription of that topic, or it has ended.",
    "List the subscriptions: `GET /v1/groups/GROUP/subscriptions`.",
)
PIN_UNKNOWN = register(
    "pin-unknown",
    404,
    "No such pin",
    "The pin was never put, or its lease has ended.",
    "List the pins with `GET /v1/store/pins`; put the pin again.",
)
QUARANTINE_ENTRY_UNKNOWN = register(
    "quarantine-entry-unknown",
    404,
    "No such entry",
    "The quarantine has no entry of that name.",
    "List the entries: `GET /v1/store/quarantine`.",
)
MESSAGE_UNKNOWN = register(
    "message-unknown",
    404,
    "No such message",
    "No record begins at that offset, or none matches.",
    "Check id, key and topic; with `complete: false` retry later.",
)
SEGMENT_UNKNOWN = register(
    "segment-unknown",
    404,
    "No such segment",
    "No file of the log has that name.",
    "List the segments: `GET /v1/segments`.",
)
OFFSET_INSIDE_MESSAGE = register(
    "offset-inside-message",
    404,
    "No message begins at the offset",
    "The offset lies inside a message, which begins at `holder`.",
    "Use the offset in `holder`.",
)
METHOD_NOT_ALLOWED = register(
    "method-not-allowed",
    405,
    "The path has no such method",
    "`Allow` lists the methods of the path.",
    "Use one of the methods in `Allow`.",
)
REQUEST_TIMEOUT = register(
    "request-timeout",
    408,
    "The request was too slow",
    "The body did not arrive within `receiveTimeoutS`.",
    "Send the body without pauses; check the network.",
)
PIN_REFUSED = register(
    "pin-refused",
    409,
    "The range cannot be pinned",
    "A part of the range is deleted, or there are too many pins.",
    "Begin at the minimum offset of the log, or end a pin that is not needed.",
)
INDEX_REBUILD_UNKNOWN = register(
    "index-rebuild-unknown",
    404,
    "No such index rebuild",
    "No such rebuild was begun, or it has ended: published, given up, or its lease lapsed.",
    "Begin a new rebuild, and renew its lease in time.",
)
INDEX_REBUILD_RUNNING = register(
    "index-rebuild-running",
    409,
    "The index is already being rebuilt",
    "`running` has its owner, its start, and when its lease lapses.",
    "Wait until it ends or its lease lapses.",
)
INDEX_REBUILD_REFUSED = register(
    "index-rebuild-refused",
    409,
    "The index cannot be rebuilt now",
    "A plan or parts are missing, or the change needs a store without a running writer.",
    "Do what `detail` says; for other sizes or formats stop the writer first.",
)
INDEX_REBUILD_INVALID = register(
    "index-rebuild-invalid",
    422,
    "The plan or the items are invalid",
    "The plan or the items do not belong to this log; none of them were taken.",
    "Derive plan and items from the log again, and send the part from its beginning.",
)
ARCHIVE_REFUSED = register(
    "archive-refused",
    409,
    "The archive offset is not accepted",
    "The offset is not durable or before the recorded one, or another archive is registered.",
    "Continue from the archive's recorded offset, or end it: `DELETE /v1/store/archive`.",
)
SWITCHOVER_REFUSED = register(
    "switchover-refused",
    409,
    "The lead cannot be handed over",
    "The shard does not elect its leader, this replica does not lead, or no other one is in sync.",
    "Do what `detail` says; `GET /v1/store/replication` names the leader and who is in sync.",
)
TOPIC_NOT_WRITABLE = register(
    "topic-not-writable",
    409,
    "The topic accepts no messages",
    "The `perm` of the topic has no write bit.",
    "Set `perm` 6: `PUT /v1/topics/TOPIC`.",
)
TOPIC_NOT_READABLE = register(
    "topic-not-readable",
    409,
    "The topic may not be read",
    "The `perm` of the topic has no read bit: consumers receive nothing of it.",
    "Set `perm` 6, or 4 without writes: `PUT /v1/topics/TOPIC`.",
)
TRANSACTIONS_REJECTED = register(
    "transactions-rejected",
    409,
    "The store takes no transactions",
    "`rejectTransactionMessage` is true; nothing was stored.",
    "Produce the messages without a transaction, or remove the setting.",
)
UNIQUE_KEY_TAKEN = register(
    "unique-key-taken",
    409,
    "The unique key belongs to another message",
    "Another message or transaction has this key since a short time; nothing was stored.",
    "Use a unique key of its own for each message.",
)
MESSAGE_EXPIRED = register(
    "message-expired",
    410,
    "The message has expired",
    "Retention deleted the message.",
    "None: the message is deleted. For the future, keep segments longer or pin them.",
)
MESSAGE_LOST = register(
    "message-lost",
    410,
    "The message was lost",
    "Recovery found it unreadable and keeps its bytes in quarantine.",
    "Look at its bytes: `GET /v1/store/quarantine`.",
)
SEGMENT_EXPIRED = register(
    "segment-expired",
    410,
    "The segment has expired",
    "Retention deleted the segment.",
    "Pin the segments before reading them.",
)
EPOCH_CHANGED = register(
    "epoch-changed",
    412,
    "The log may have changed",
    "A recovery may have changed the log since the first read.",
    "Read from the beginning, with the new `ETag`.",
)
BODY_TOO_LARGE = register(
    "body-too-large",
    413,
    "The request is too large",
    "The body, the batch or a message exceeds its limit.",
    "Send less in one request, or raise `maxRequestSize`, `maxMessageSize` or `maxBatchCount`.",
)
UNSUPPORTED_MEDIA_TYPE = register(
    "unsupported-media-type",
    415,
    "The content type is not supported",
    "`detail` lists the content types that are read.",
    "Send one of the types that `detail` lists.",
)
RANGE_NOT_SATISFIABLE = register(
    "range-not-satisfiable",
    416,
    "The range is not satisfiable",
    "`Range` begins behind the last byte; `Content-Range` has the length.",
    "Request bytes below the length in `Content-Range`.",
)
RELEASE_REFUSED = register(
    "release-refused",
    409,
    "The shard keeps its keys",
    "It is the first shard of the list, which decides the shards of keys, and is never removed.",
    "Release another shard; shards are removed from the end of the list.",
)
WRONG_SHARD = register(
    "wrong-shard",
    421,
    "The request belongs to another shard",
    "Nothing was done; `shard` and `url` say where to send it.",
    "Send the request to `url`; the Python client does so.",
)
MISDIRECTED = register(
    "misdirected",
    421,
    "The request is for another host",
    "Without configured tokens only loopback names and addresses are served.",
    "Use `localhost`, or configure tokens.",
)
BODY_INVALID = register(
    "body-invalid",
    422,
    "The body does not match the schema",
    "A field is missing, wrong or unknown.",
    "Correct the fields that `detail` names; `/docs` has the schema.",
)
TOPIC_INVALID = register(
    "topic-invalid",
    422,
    "The topic's name is not allowed",
    "The name is reserved, too long, no file name, or has a character that is not allowed.",
    "Choose another name, of `%`, `|`, letters, digits, `_` and `-`.",
)
TOPIC_CONFIG = register(
    "topic-config-invalid",
    422,
    "Invalid topic configuration",
    "Queue counts, `perm` or attributes are out of range.",
    "Correct what `detail` names; attributes need a store of format 5.x.",
)
QUEUES_UNREAD = register(
    "queues-unread",
    409,
    "Queues with unread messages cannot be taken away",
    "After the change no consumer could receive messages that groups have not consumed.",
    "Lower `writeQueues` first, and `readQueues` once the groups in `detail` have consumed these"
    " queues; or repeat the request with `allowUnread`.",
)
PROPERTY_INVALID = register(
    "property-invalid",
    422,
    "A property is not allowed",
    "A property is reserved, or contains a separator.",
    "Choose another name or value: without NUL, 0x01 and 0x02, and without spaces in keys.",
)
MESSAGE_INVALID = register(
    "message-invalid",
    422,
    "The message cannot be stored",
    "A field, `queueId` or `delayLevel` has a value that no record can hold.",
    "Correct the field that `detail` names.",
)
BODY_NOT_INFLATABLE = register(
    "body-not-inflatable",
    422,
    "The stored body cannot be inflated",
    "The stored body is not compressed data, or exceeds a limit when it is inflated.",
    "Request it without `inflate`, or raise `maxInflatedSize` or `maxInflateRatio`.",
)
CLIENT_OVER_SHARE = register(
    "client-over-share",
    429,
    "Too many requests from one client",
    "This address has its share of connections, requests, bytes or compiling expressions.",
    "Wait for replies before sending more, or raise `maxClientShare`.",
    retry_after_s=1,
)
CHECKSUM_MISMATCH = register(
    "checksum-mismatch",
    422,
    "The checksum does not match",
    "The body does not match its `crc32c` or `X-Mqstore-Crc32c`; nothing was stored.",
    "Send it again; if it fails again, check the network and how the checksum is computed.",
)
HEADERS_TOO_LARGE = register(
    "headers-too-large",
    431,
    "The headers are too large",
    "Request line and headers exceed `maxHeaderSize`.",
    "Shorten the request line and headers, or raise `maxHeaderSize`.",
)
INTERNAL = register(
    "internal",
    500,
    "Internal error",
    "The service has a defect; its log has the error under `requestId`.",
    "Search the log for `requestId`, and report the defect.",
)
MESSAGE_DAMAGED = register(
    "message-damaged",
    500,
    "The stored message is damaged",
    "`detail` names the defect and the position.",
    "`GET /v1/store/scrub` (`mqstore scrub status`) has the damage; the scrub repairs what it can. "
    "`mqstore store verify` checks a store at rest.",
)
MESSAGE_SUSPECT = register(
    "message-suspect",
    500,
    "The stored message may have changed",
    "Bytes of the log changed on the disk where the message is stored; `detail` names them.",
    "Look at `GET /v1/store/scrub`, then repair the damage or restore the volume.",
)
OVERLOADED = register(
    "overloaded",
    503,
    "The service is overloaded",
    "A limit of the service is reached: connections, requests, look-ups, polls, or bytes.",
    "Retry after `Retry-After`; if it persists, raise the limit in `detail`: "
    "`maxConnections`, `maxRequests`, `maxPendingQueries`, `maxOpenPolls` or `maxPendingBytes`.",
    retry_after_s=1,
)
STORE_NOT_READY = register(
    "store-not-ready",
    503,
    "The store is not ready",
    "The service starts, recovery is not complete, or other shards do not know this one yet.",
    "Retry after `Retry-After`; `/healthz/ready` has the reason, `/healthz/startup` progress.",
    retry_after_s=1,
)
SHUTTING_DOWN = register(
    "shutting-down",
    503,
    "The service is shutting down",
    "The process ends; a produce that waited for the disk may be stored.",
    "Retry after `Retry-After`; repeat a produce under its `uniqKey`.",
    retry_after_s=5,
)
SHARD_UNREACHABLE = register(
    "shard-unreachable",
    503,
    "The shard is unreachable",
    "The shard that has the message or transaction does not reply.",
    "Check that shard; the others work. Repeat a produce or begin under its unique keys.",
    retry_after_s=1,
)
STORE_NOT_WRITABLE = register(
    "store-not-writable",
    503,
    "The store does not accept the message",
    "The store does not accept this message; `detail` says why.",
    "Do what `detail` says.",
    retry_after_s=5,
)
STORE_READ_ONLY = register(
    "store-read-only",
    503,
    "The store is read-only",
    "The store accepts no change until an operator acts; `detail` says why.",
    "Do what `detail` says; the reason is also in `GET /v1/store`.",
    retry_after_s=30,
)
DISK_REFUSES = register(
    "disk-refuses",
    503,
    "The disk refused the recovery",
    "The disk refused the recovery at the start; the store is read-only until a retry succeeds.",
    "Check the disk; the service retries by itself.",
    retry_after_s=5,
)
WRITES_PAUSED = register(
    "writes-paused",
    503,
    "Writes are paused",
    "An administrator paused writes; `detail` has the reason.",
    "Resume writes: `PUT /v1/store/writes` with `paused` false; `GET` has the reason.",
    retry_after_s=5,
)
STORE_FAILED = register(
    "store-failed",
    503,
    "The disk failed",
    "The disk failed; nothing more is acknowledged and the process ends.",
    "Check the disk and the kernel log; the process restarts with a recovery.",
    retry_after_s=5,
)
PAGE_CACHE_BUSY = register(
    "page-cache-busy",
    503,
    "The page cache is busy",
    "Another put has waited for the next segment longer than `osPageCacheBusyTimeOutMills`.",
    "Retry; if it persists, check the load of the disk.",
    retry_after_s=1,
)
FLUSH_TIMEOUT = register(
    "flush-timeout",
    504,
    "Stored, but not known to be on disk",
    "The messages are stored but not known to be on disk; `messages` has their ids and offsets.",
    "Do not repeat the produce without its `uniqKey`; check the disk.",
)
FLUSH_SLAVE_TIMEOUT = register(
    "flush-slave-timeout",
    504,
    "Stored, but not known to be on a slave",
    "No slave has acknowledged the messages within slaveTimeout; `messages` has their places.",
    "Do not repeat the produce without its `uniqKey`; look at the lag of the slaves.",
)
SLAVE_NOT_AVAILABLE = register(
    "slave-not-available",
    504,
    "Stored, and there is no slave",
    "The messages are stored, but no slave is connected, or the nearest one is "
    "haSlaveFallbehindMax or more behind; `messages` has their ids and offsets.",
    "Do not repeat the produce without its `uniqKey`; start a slave, or wait for its catch-up.",
)
IN_SYNC_REPLICAS_NOT_ENOUGH = register(
    "in-sync-replicas-not-enough",
    503,
    "Too few copies are in sync",
    "Fewer copies than `minInSyncReplicas` are in sync; nothing was stored.",
    "Retry; look at the lag of the replicas. One copy is enough with durability `async`.",
    retry_after_s=1,
)
OFFSET_NOT_REACHED = register(
    "offset-not-reached",
    503,
    "The log is not readable up to the requested offset",
    "`X-Mqstore-At-Least` names an offset that this copy of the shard has not reached after a few "
    "seconds; `readableOffset` is how far it is, `behindBytes` how many bytes are missing.",
    "Retry, or read from the leader; look at the lag of the copy.",
    retry_after_s=1,
)
CHANGE_UNCONFIRMED = register(
    "change-unconfirmed",
    504,
    "Changed, but not known to be on all replicas",
    "A replica in sync has not acknowledged it within slaveTimeout, or the leader lost the lead.",
    "Repeat the request at the leader, which `GET /v1/store/replication` names.",
)
WAIT_KINDS: Final = (FLUSH_TIMEOUT, FLUSH_SLAVE_TIMEOUT, SLAVE_NOT_AVAILABLE)
"""Problems of messages that are stored, and whose durability is not known."""
STAGING_DAMAGED = register(
    "staging-damaged",
    500,
    "The new index files are damaged",
    "The new index files differ from what was written; nothing was published.",
    "Check the disk, then run the rebuild again.",
)
REPAIR_REFUSED = register(
    "repair-refused",
    503,
    "The log cannot be repaired now",
    "Damaged bytes cannot be kept, or a replica in sync did not reply; nothing was changed.",
    "Make room, repair the disk or start the replica; repeat `POST /v1/store/scrub:repair`.",
)
DISK_FULL = register(
    "disk-full",
    507,
    "The disk is full",
    "There is no room for messages or index files; `disk` may have the figures.",
    "Make room: enlarge the volume, shorten retention or end pins.",
    retry_after_s=30,
)
TOO_MANY_FILES = register(
    "too-many-files",
    503,
    "Too many open files",
    "A file for messages cannot be opened.",
    "Raise the limit of open files (`ulimit -n`); the writer retries each second.",
    retry_after_s=5,
)
DISK_ERROR = register(
    "disk-error",
    503,
    "The disk cannot create a file",
    "A file for messages cannot be created, for another reason than room; `detail` has it.",
    "Check the disk and its mount; the writer retries each second.",
    retry_after_s=5,
)

ANY_ROUTE: Final = (BAD_PARAMETER, HEADERS_TOO_LARGE, INTERNAL)
LIMITED: Final = (CLIENT_OVER_SHARE, OVERLOADED)
"""Problems of every route but health and metrics."""
GUARDED: Final = (
    *(UNAUTHENTICATED, FORBIDDEN, MISDIRECTED, STORE_NOT_READY, SHUTTING_DOWN),
    *LIMITED,
)
"""Problems of every route with a role."""
OF_SHARDS: Final = (SHARD_UNKNOWN, SHARD_UNREACHABLE, WRONG_SHARD)
"""Problems of every route with `?shard=`."""
READ_ONLY_KINDS: Final = (STORE_READ_ONLY, DISK_REFUSES)
"""Reasons why a store accepts no change."""
FILE_KINDS: Final = (DISK_FULL, TOO_MANY_FILES, DISK_ERROR)
"""Reasons why a file for messages cannot be created."""
WITH_BODY: Final = (
    BAD_JSON,
    BAD_PARAMETER,
    REQUEST_TIMEOUT,
    BODY_TOO_LARGE,
    UNSUPPORTED_MEDIA_TYPE,
    BODY_INVALID,
)
