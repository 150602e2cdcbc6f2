"""Decodes and checks the bytes of a produce request.

Called from ``routes``. No function waits or reads the store's files.
"""

from __future__ import annotations

import ipaddress
import re
from functools import lru_cache
from typing import Annotated, Final

import msgspec
from crc32c import crc32c

from mqstore.service import bodies, problems
from mqstore.service.problems import Problem
from mqstore.service.structs import struct_of
from mqstore.storage.formats import Host, count_json_values
from mqstore.wire.base import UINT32_MAX
from mqstore.wire.produce import Durability, NewMessage, ProduceRequest

JSON_TYPE: Final = b"application/json"

HEAVY_SIZE: Final = 512 << 10
HEAVY_VALUES: Final = 2_500
"""Maximum bytes, and JSON values, of a body decoded on the event loop, in about 3 ms."""
HEAVY_BATCH_SIZE: Final = 1 << 20
"""Maximum bytes of a body in RocketMQ's batch encoding decoded on the event loop."""
VALUES_MAX: Final = 400_000
"""Maximum number of JSON values of a request: 40 for each of 10,000 messages."""
MESSAGE_VALUES_MAX: Final = 20_000
"""Maximum number of JSON values of a message, more than 32 KiB of properties can hold."""


class _Outline(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A ``ProduceRequest`` with undecoded messages."""

    messages: Annotated[list[msgspec.Raw], msgspec.Meta(min_length=1)]
    durability: Durability | None = None


_Request: Final = struct_of(ProduceRequest)
_decoder = msgspec.json.Decoder(_Request)
_MEMBERS: Final = (b'"messages"', b'"durability"')
"""Members of a large request; those of its messages are looked at with each."""
_outline_decoder = msgspec.json.Decoder(_Outline)
_message_decoder = msgspec.json.Decoder(struct_of(NewMessage))
_MESSAGE_PATH: Final = re.compile(r"`\$\.messages\[(\d+)\]")
"""A message's place in the text of a validation error."""


def is_heavy(body: bytes, *, is_json: bool) -> bool:
    """Return whether a thread must decode a body, since it would block the event loop too long."""
    if not is_json:
        return len(body) > HEAVY_BATCH_SIZE
    if len(body) > HEAVY_SIZE:
        return True
    return len(body) > HEAVY_VALUES and count_json_values(body, HEAVY_VALUES) > HEAVY_VALUES


def decode_request(body: bytes, max_count: int, *, heavy: bool) -> ProduceRequest:
    """Decode a JSON body; a ``heavy`` one so that other threads run in between.

    Raises Problem: 400 for invalid JSON, 422 for a body that does not match the schema, 413 for too
    many messages.
    """
    if heavy:
        return _decode_heavy(body, max_count)
    try:
        request = bodies.decode(_decoder, body)
    except Problem as problem:
        if found := _MESSAGE_PATH.search(problem.detail):
            problem.extra["index"] = int(found[1])
        raise
    check_count(len(request.messages), max_count)
    return request


def _decode_heavy(body: bytes, max_count: int) -> ProduceRequest:
    """Decode a large request message by message.

    Raises what ``decode_request`` raises.
    """
    bodies.check_values(body, VALUES_MAX)
    outline = bodies.decode(_outline_decoder, body, is_distinct=True)
    if any(body.count(name) > 1 for name in _MEMBERS):
        bodies.require_distinct(body)
    check_count(len(outline.messages), max_count)
    messages = []
    for number, raw in enumerate(outline.messages):
        text = bytes(raw)
        bodies.check_values(text, MESSAGE_VALUES_MAX)
        try:
            messages.append(bodies.decode(_message_decoder, text))
        except Problem as problem:
            detail = f"message {number}: {problem.detail}"
            raise Problem(problem.kind, detail, extra={"index": number}) from None
    return _Request(messages=messages, durability=outline.durability)


def check_count(count: int, max_count: int) -> None:
    """Raises Problem (413) for more messages than a request may have."""
    if count > max_count:
        raise Problem(
            problems.BODY_TOO_LARGE,
            f"{count} messages are over maxBatchCount ({max_count}); send fewer at a time",
        )


def check_crc32c(body: bytes, given: int, what: str) -> None:
    """Raises Problem if the CRC-32C of a body is not the given one."""
    if (found := crc32c(body)) != given:
        raise Problem(
            problems.CHECKSUM_MISMATCH,
            f"{what} came with CRC-32C {found}, not {given}: send it again, or mend the checksum",
        )


def crc32c_of(header: bytes) -> int:
    """Parse the header X-Mqstore-Crc32c. Raises Problem (400)."""
    if header.isdigit() and len(header) <= 10 and int(header) <= UINT32_MAX:
        return int(header)
    raise Problem(
        problems.BAD_PARAMETER, f"X-Mqstore-Crc32c is a decimal number from 0 to {UINT32_MAX}"
    )


@lru_cache(maxsize=4096)
def client_host(address: str, port: int) -> Host:
    """Return the address of a client as a host. Cached, since each request needs it."""
    return Host(_packed(address), port)


def _packed(address: str) -> bytes:
    parsed = ipaddress.ip_address(address.partition("%")[0])
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return (mapped or parsed).packed
