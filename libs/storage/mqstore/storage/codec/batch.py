"""RocketMQ's batch encoding, in which clients send several messages as one body.

Called from the store-writer service (``application/x-rocketmq-batch``). Per message: total size 4,
magic 4, body CRC 4, flag 4, body length 4, body, properties length 2, properties; big-endian.
Sources: MessageDecoder.encodeMessage and the batch part of MessageExtEncoder, 4.9.7 and 5.4.0. The
store takes neither magic nor CRC from a batch (clients write 0), and finds messages by body and
properties length; this decoder also checks the total size.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from mqstore.storage.codec.record import Message
from mqstore.storage.errors import MessageInvalid, PropertiesTooLong, PutRefused
from mqstore.storage.layout import PROPERTIES_LENGTH_MAX, PROPERTY_SEPARATOR, StoreFormat

_HEAD: Final = struct.Struct(">iiiii")
_PROPERTIES_LENGTH: Final = struct.Struct(">h")
_SEPARATOR: Final = PROPERTY_SEPARATOR.encode()


def decode_batch(
    data: bytes,
    template: Message,
    *,
    batch_properties: bytes = b"",
    store_format: StoreFormat,
) -> list[Message]:
    """Decode the messages of a batch; ``template`` gives the fields that it does not hold.

    ``batch_properties`` (encoded, without a trailing separator) are those of the batch itself: a
    4.9 store appends them to each message's own, a 5.x store ignores them. Topic, queue, hosts,
    sysFlag, born time and reconsume times are the batch's, for each. Raises MessageInvalid, naming
    the byte where the encoding breaks, and PropertiesTooLong, with the ``index`` of the message.
    """
    shared = b"" if store_format is StoreFormat.V5_X else batch_properties
    found: list[Message] = []
    try:
        for flag, body, properties in _items(data):
            message = Message(  # several times faster than a copy with some fields replaced
                template.topic,
                template.queue_id,
                body,
                _join(properties, shared) if shared else properties,
                template.born_host,
                template.store_host,
                template.born_timestamp_ms,
                flag,
                template.sys_flag,
                template.reconsume_times,
                template.prepared_transaction_offset,
            )
            found.append(message)
    except PutRefused as refused:
        refused.index = len(found)
        raise
    return found


def encode_batch(messages: list[Message]) -> bytes:
    """Encode flag, body and properties of each message as RocketMQ's clients do."""
    return b"".join(_encode_item(message) for message in messages)


def _items(data: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    if not data:
        raise MessageInvalid("batch is empty; send one message or more")
    position = 0
    while position < len(data):
        body_at = _end(data, position, _HEAD.size, "head")
        total, _magic, _crc, flag, body_length = _HEAD.unpack_from(data, position)
        body_end = _end(data, body_at, body_length, "body")
        properties_at = _end(data, body_end, _PROPERTIES_LENGTH.size, "properties length")
        (properties_length,) = _PROPERTIES_LENGTH.unpack_from(data, body_end)
        end = _end(data, properties_at, properties_length, "properties")
        if total != end - position:
            raise _broken(position, f"total size is {total}, its parts make {end - position}")
        yield flag, data[body_at:body_end], data[properties_at:end]
        position = end


def _end(data: bytes, position: int, length: int, what: str) -> int:
    end = position + length
    if length < 0:
        raise _broken(position, f"{what} has the negative length {length}")
    if end > len(data):
        raise _broken(position, f"{what} of {length} bytes runs past the end at {len(data)}")
    return end


def _join(own: bytes, shared: bytes) -> bytes:
    needs_separator = own and shared and not own.endswith(_SEPARATOR)
    joined = own + (_SEPARATOR if needs_separator else b"") + shared
    if len(joined) > PROPERTIES_LENGTH_MAX:
        raise PropertiesTooLong(
            f"properties of {len(joined)} bytes, with the batch's own, are over "
            f"{PROPERTIES_LENGTH_MAX}; send fewer or shorter properties"
        )
    return joined


def _encode_item(message: Message) -> bytes:
    body = message.body or b""
    properties = message.properties
    total = _HEAD.size + len(body) + _PROPERTIES_LENGTH.size + len(properties)
    head = _HEAD.pack(total, 0, 0, message.flag, len(body))
    return head + body + _PROPERTIES_LENGTH.pack(len(properties)) + properties


def _broken(position: int, why: str) -> MessageInvalid:
    return MessageInvalid(f"batch is malformed at byte {position}: {why}")
