"""Messages to store, and the places at which they are stored."""

from __future__ import annotations

import binascii
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from mqstore.wire.base import INT32_MAX, INT32_MIN, UINT32_MAX, Reply, Request, left_out

Durability = Literal["sync", "async"]
Int32 = Annotated[int, Field(ge=INT32_MIN, le=INT32_MAX, strict=True)]
QueueId = Annotated[int, Field(ge=0, le=INT32_MAX, strict=True)]


class Content(Request):
    """The fields of every new message."""

    body: Annotated[str | None, Field(description="Text, stored as UTF-8.")] = None
    body_base64: Annotated[str | None, Field(description="Bytes, in standard base64.")] = None
    tags: Annotated[str | None, Field(description="One tag, for filtering.")] = None
    keys: Annotated[list[str], Field(description="Index keys, without spaces inside.")] = []
    properties: Annotated[
        dict[str, str],
        Field(description="User properties; RocketMQ's own names are refused."),
    ] = {}
    queue_id: Annotated[QueueId | None, Field(description="Default: round-robin.")] = None
    flag: Annotated[Int32, Field(description="The application's own flag.")] = 0
    uniq_key: str | None = None

    @model_validator(mode="after")
    def _has_one_body(self) -> Self:
        body_bytes(self.body, self.body_base64)
        return self


class NewMessage(Content):
    """One message to store. Give ``body`` or ``bodyBase64``; neither is an empty body."""

    queue_id: Annotated[
        QueueId | None, Field(description="Default: round-robin; one per request.")
    ] = None
    delay_level: Annotated[
        int,
        Field(
            ge=0,
            le=INT32_MAX,
            strict=True,
            description="0: at once. Else the level of messageDelayLevel, from 1: the message "
            "is delivered to its topic after that time; until then it is in SCHEDULE_TOPIC_XXXX, "
            "to which queueId and queueOffset of the reply refer.",
            examples=[0, 3],
        ),
    ] = 0
    uniq_key: Annotated[
        str | None,
        Field(
            description="Default: a generated unique key. A message with a key that the topic "
            "had a short time ago is not stored again: the reply is that of the first one."
        ),
    ] = None
    crc32c: Annotated[
        Annotated[int, Field(ge=0, le=UINT32_MAX, strict=True)] | None,
        Field(
            alias="crc32c",
            description="CRC-32C of the body's bytes; a body that has another one is refused.",
        ),
    ] = None


def body_bytes(text: str | None, encoded: str | None) -> bytes:
    """Return a body that is given as text or in base64.

    Raises ValueError if both are given, or for invalid base64.
    """
    if encoded is None:
        return b"" if text is None else text.encode()
    if text is not None:
        raise ValueError("give body or bodyBase64, not both")
    try:
        return binascii.a2b_base64(encoded, strict_mode=True)
    except ValueError as error:  # binascii.Error is one
        raise ValueError(f"bodyBase64 is no base64: {error}") from None


class ProduceRequest(Request):
    """Messages of one topic; several are one contiguous append to one queue, all or none."""

    messages: Annotated[list[NewMessage], Field(min_length=1)]
    durability: Annotated[
        Durability | None,
        Field(
            description="sync: on disk before the reply. async: in the page cache, survives "
            "the process but not the machine. Default: as flushDiskType."
        ),
    ] = None


class MessagePlace(Reply, title="Placed"):
    """The place at which a message is stored."""

    offset_msg_id: str
    uniq_key: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    size: Annotated[int, Field(description="Bytes of its record.")]
    store_timestamp: Annotated[int, Field(description="Milliseconds since the epoch.")]
    shard: int
    repeat: bool = left_out(
        "Stored before, under this unique key; left out when false.", default=False
    )


class ProduceReply(Reply, title="ProduceReply"):
    """The places of the messages, in the order of the request."""

    messages: tuple[MessagePlace, ...]
