"""RocketMQ's batch encoding, in which clients send several messages as one body.

Called from the store-writer service (``application/x-rocketmq-batch``). Per message: total size 4,
magic 4, body CRC 4, flag 4, body length 4, body, properties length 2, properties; big-endian.
Sources: MessageDecoder.encodeMessage and the batch part of MessageExtEncoder, 4.9.7 and 5.4.0. The
store takes neither magic nor CRC from a batch (clients write 0), and finds messages by body and
properties length. The kernel reads batches (``Sends``); a broken one is named here.
"""

from __future__ import annotations

import struct
from typing import Final

from mqstore.storage.codec.record import Message
from mqstore.storage.errors import MessageInvalid

_HEAD: Final = struct.Struct(">iiiii")
_PROPERTIES_LENGTH: Final = struct.Struct(">h")


def check_encoding(data: bytes) -> None:
    """Raise MessageInvalid, naming the byte where the encoding breaks, with the ``index`` of the
    message."""
    position = number = 0
    if not data:
        raise MessageInvalid("batch is empty; send one message or more")
    try:
        while position < len(data):
            position = _end_of_item(data, position)
            number += 1
    except MessageInvalid as broken:
        broken.index = number
        raise


def encode_batch(messages: list[Message]) -> bytes:
    """Encode flag, body and properties of each message as RocketMQ's clients do."""
    return b"".join(_encode_item(message) for message in messages)


def _end_of_item(data: bytes, position: int) -> int:
    body_at = _end(data, position, _HEAD.size, "head")
    total, _magic, _crc, _flag, body_length = _HEAD.unpack_from(data, position)
    body_end = _end(data, body_at, body_length, "body")
    properties_at = _end(data, body_end, _PROPERTIES_LENGTH.size, "properties length")
    (properties_length,) = _PROPERTIES_LENGTH.unpack_from(data, body_end)
    end = _end(data, properties_at, properties_length, "properties")
    if total != end - position:
        raise _broken(position, f"total size is {total}, its parts make {end - position}")
    return end


def _end(data: bytes, position: int, length: int, what: str) -> int:
    end = position + length
    if length < 0:
        raise _broken(position, f"{what} has the negative length {length}")
    if end > len(data):
        raise _broken(position, f"{what} of {length} bytes runs past the end at {len(data)}")
    return end


def _encode_item(message: Message) -> bytes:
    body = message.body or b""
    properties = message.properties
    total = _HEAD.size + len(body) + _PROPERTIES_LENGTH.size + len(properties)
    head = _HEAD.pack(total, 0, 0, message.flag, len(body))
    return head + body + _PROPERTIES_LENGTH.pack(len(properties)) + properties


def _broken(position: int, why: str) -> MessageInvalid:
    return MessageInvalid(f"batch is malformed at byte {position}: {why}")
