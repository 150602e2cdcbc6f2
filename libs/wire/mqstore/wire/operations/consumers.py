"""Shared consumer groups: receive, acknowledge, return, extend."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mqstore.wire import problems
from mqstore.wire.base import INT32_MAX
from mqstore.wire.consumers import (
    Acknowledgement,
    Extension,
    ReceiptResults,
    ReceivedMessages,
    ReceiveSpec,
    Return,
)
from mqstore.wire.examples import consumers as examples
from mqstore.wire.operation import Operation, Role, Target

_PATH: Final = "/v1/groups/{group}"
_PARAMETERS: Final[tuple[Mapping[str, Any], ...]] = (
    {
        "name": "group",
        "in": "path",
        "required": True,
        "schema": {"type": "string", "pattern": "^[%|a-zA-Z0-9_-]+$", "maxLength": 120},
        "example": "billing",
        "description": "Consumer group. It needs no creation.",
    },
    {
        "name": "shard",
        "in": "query",
        "schema": {"type": "integer", "minimum": 0, "maximum": INT32_MAX},
        "description": "The only shard to use; without it, any of them.",
    },
)
_UNWRITTEN: Final = (problems.STORE_READ_ONLY, problems.STORE_FAILED)
_RECEIPTS: Final = (
    problems.GROUP_INVALID,
    problems.RECEIPT_INVALID,
    *problems.OF_SHARDS,
    *_UNWRITTEN,
    *problems.WITH_BODY,
)

RECEIVE: Final = Operation(
    name="receive",
    targets=(Target.WRITER,),
    method="POST",
    path=_PATH + ":receive",
    role=Role.CONSUME,
    parameters=_PARAMETERS,
    summary="Lease messages",
    tag="consumers",
    description="Leases messages of the named topics, and of the group's retry topic, to the "
    "caller: no other consumer gets them before the lease expires. Acknowledge each message with "
    "its `receipt`; what is not acknowledged in time is delivered again, and is a dead letter "
    "(`%DLQ%GROUP`) after the group's `retryMaxTimes`. The group's offset in "
    "`consumerOffset.json` is that of its lowest message that is not acknowledged, so a broker "
    "continues there.",
    request=ReceiveSpec,
    reply=ReceivedMessages,
    example=examples.RECEIVED,
    problems=(
        problems.TOPIC_UNKNOWN,
        problems.BAD_FILTER,
        problems.GROUP_INVALID,
        problems.GROUP_DISABLED,
        problems.OVERLOADED,
        *problems.OF_SHARDS,
        *_UNWRITTEN,
        *problems.WITH_BODY,
    ),
)
ACKNOWLEDGE: Final = Operation(
    name="acknowledge",
    targets=(Target.WRITER,),
    method="POST",
    path=_PATH + ":ack",
    role=Role.CONSUME,
    parameters=_PARAMETERS,
    summary="Acknowledge messages",
    tag="consumers",
    description="Ends the delivery of messages. May be repeated. Acknowledgements are on disk "
    "within flushConsumerOffsetInterval: after a kill some messages may be delivered again.",
    request=Acknowledgement,
    reply=ReceiptResults,
    example=examples.RESULTS,
    problems=_RECEIPTS,
)
RETURN: Final = Operation(
    name="give_back",
    targets=(Target.WRITER,),
    method="POST",
    path=_PATH + ":nack",
    role=Role.CONSUME,
    parameters=_PARAMETERS,
    summary="Return messages, to be delivered later",
    tag="consumers",
    description="Stores a copy for `%RETRY%GROUP`, as a broker does, which is delivered after a "
    "delay level; after `retryMaxTimes`, or with level -1, for `%DLQ%GROUP`. May be repeated.",
    request=Return,
    reply=ReceiptResults,
    example=examples.RESULTS,
    problems=(
        *_RECEIPTS,
        problems.PROPERTY_INVALID,
        problems.STORE_NOT_WRITABLE,
        problems.DISK_FULL,
        problems.PAGE_CACHE_BUSY,
        problems.FLUSH_TIMEOUT,
        problems.WRITES_PAUSED,
    ),
)
EXTEND: Final = Operation(
    name="extend",
    targets=(Target.WRITER,),
    method="POST",
    path=_PATH + ":extend",
    role=Role.CONSUME,
    parameters=_PARAMETERS,
    summary="Extend leases, or end them",
    tag="consumers",
    description="Sets the end of leases, counted from now. 0 delivers the messages again at once.",
    request=Extension,
    reply=ReceiptResults,
    example=examples.RESULTS,
    problems=_RECEIPTS,
)
