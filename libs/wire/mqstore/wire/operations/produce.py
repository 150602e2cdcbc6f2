"""Storing messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mqstore.wire import idempotency, problems
from mqstore.wire.base import INT32_MAX, UINT32_MAX
from mqstore.wire.examples import stores as examples
from mqstore.wire.operation import TOPIC_PARAMETER, Operation, Role, Target
from mqstore.wire.produce import ProduceReply, ProduceRequest

BATCH_TYPE: Final = "application/x-rocketmq-batch"
_PROBLEMS: Final = (
    problems.TOPIC_UNKNOWN,
    problems.TOPIC_NOT_WRITABLE,
    problems.SHARD_UNKNOWN,
    problems.WRONG_SHARD,
    problems.UNIQUE_KEY_TAKEN,
    problems.SHARD_UNREACHABLE,
    problems.TOPIC_INVALID,
    problems.PROPERTY_INVALID,
    problems.CHECKSUM_MISMATCH,
    problems.MESSAGE_INVALID,
    problems.STORE_NOT_WRITABLE,
    *problems.READ_ONLY_KINDS,
    problems.WRITES_PAUSED,
    problems.PAGE_CACHE_BUSY,
    problems.STORE_FAILED,
    problems.FLUSH_TIMEOUT,
    *problems.FILE_KINDS,
)
_TEXT: Final = (
    "One message or a batch; a batch is one contiguous append to one queue, all or none. The "
    "reply comes when the requested durability is reached. "
    "`application/x-rocketmq-batch` is the body that RocketMQ's clients encode (per message: "
    "total size 4, magic 4, body CRC 4, flag 4, body length 4, body, properties length 2, "
    "properties; big-endian); `queueId` and `durability` are then query parameters."
)
_PARAMETERS: Final[tuple[Mapping[str, Any], ...]] = (
    TOPIC_PARAMETER,
    {
        "name": "queueId",
        "in": "query",
        "schema": {"type": "integer", "minimum": 0},
        "description": "Only with application/x-rocketmq-batch.",
    },
    {
        "name": "shard",
        "in": "query",
        "schema": {"type": "integer", "minimum": 0, "maximum": INT32_MAX},
        "description": "The shard that is meant: another one answers 421 with its address. "
        "Without it messages under a `uniqKey` or Idempotency-Key are stored on the shard that "
        "the key names, all others on the one that got them.",
    },
    {
        "name": "durability",
        "in": "query",
        "schema": {"enum": ["sync", "async"]},
        "description": "Only with application/x-rocketmq-batch.",
    },
    {
        "name": "X-Mqstore-Crc32c",
        "in": "header",
        "schema": {"type": "integer", "minimum": 0, "maximum": UINT32_MAX},
        "description": "CRC-32C of the request's whole body, in decimal: a body that has "
        "another one is refused, and nothing is stored. JSON also takes one for each message.",
    },
    idempotency.parameter(
        "A request that was stored under it before is answered with the first one's placement "
        "and `repeat`, within uniqueKeyWindow; with another body or number of messages it is "
        "409 `unique-key-taken`."
    ),
)
PRODUCE: Final = Operation(
    name="produce",
    targets=(Target.WRITER,),
    method="POST",
    path="/v1/topics/{topic}/messages",
    role=Role.PRODUCE,
    summary="Store messages",
    tag="messages",
    description=_TEXT,
    parameters=_PARAMETERS,
    request=ProduceRequest,
    request_example=examples.PRODUCE,
    request_content={BATCH_TYPE: {"schema": {"type": "string", "format": "binary"}}},
    reply=ProduceReply,
    example=examples.PRODUCED,
    status=201,
    text="Stored, with the requested durability.",
    problems=_PROBLEMS,
    problem_members={problems.FLUSH_TIMEOUT: examples.PRODUCED},
)
