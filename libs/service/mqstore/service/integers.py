"""Replies in JSON whose integers are strings, for clients that read numbers as 64-bit floats.

JavaScript's ``JSON.parse`` rounds integers above 2^53. A request with ``Accept: application/json;
integers=string`` gets each integer of the reply as a string. Called from ``mqstore.service.http``.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec
from starlette.types import Message, Scope, Send

from mqstore.service.problems import CONTENT_TYPE

_PATHS: Final = "/v1/"
"""Beginning of the paths whose replies it concerns; health and API documents are others."""
_JSON: Final = b"application/json"
_PROBLEM: Final = CONTENT_TYPE.encode()
STRINGS_TYPE: Final = b"application/json; integers=string"
"""Media type of a reply whose integers are strings."""
_REQUESTED: Final = re.compile(
    rb'(application/json *(?:;[^;,]*)*?); *integers="?string"? *(?=[;,]|$)', re.IGNORECASE
)
_TOKEN: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|(-?[0-9]++)(?![.eE])|-?[0-9][0-9.eE+-]*+')
"""A string, an integer (the group) or another number of a JSON document."""


def are_strings(scope: Scope) -> bool:
    """Return whether a request wants the integers of its reply as strings."""
    return scope["path"].startswith(_PATHS) and any(
        name == b"accept" and _REQUESTED.search(value) for name, value in scope["headers"]
    )


def with_numbers(scope: Scope) -> Scope:
    """Return the same request without its wish for strings.

    Handlers and other services, to which they forward the request, then exchange numbers.
    """
    headers = [
        (name, _REQUESTED.sub(rb"\1", value) if name == b"accept" else value)
        for name, value in scope["headers"]
    ]
    return {**scope, "headers": headers}


def as_strings(document: bytes) -> bytes:
    """Return a JSON document with each integer as a string; all else is unchanged."""
    return _TOKEN.sub(lambda found: b'"%b"' % found[1] if found[1] else found[0], document)


def encode(body: bytes, content_type: bytes) -> tuple[bytes, bytes]:
    """Return the body of a reply with its integers as strings, and its media type.

    The ``status`` of a problem remains a number (RFC 9457). Other media types are unchanged.
    """
    if content_type == _JSON:
        return as_strings(body), STRINGS_TYPE
    if content_type == _PROBLEM:
        problem = msgspec.json.decode(as_strings(body))
        return msgspec.json.encode(problem | {"status": int(problem["status"])}), _PROBLEM
    return body, content_type


def encoding(send: Send) -> Send:
    """Return a function that sends an ASGI response through ``send``, with integers as strings.

    A response in JSON is sent when it is whole.
    """
    held: list[Message] = []

    async def send_encoded(message: Message) -> None:
        if message["type"] == "http.response.start" and _type_of(message) in (_JSON, _PROBLEM):
            held.append(message)
            return
        if not held:
            await send(message)
            return
        held.append(message)
        if not message.get("more_body", False):
            start, *parts = held
            body, kind = encode(b"".join(each.get("body", b"") for each in parts), _type_of(start))
            changed = {b"content-type": kind, b"content-length": b"%d" % len(body)}
            others = [each for each in start["headers"] if each[0].lower() not in changed]
            await send({**start, "headers": [*others, *changed.items()]})
            await send({"type": "http.response.body", "body": body})

    return send_encoded


def _type_of(start: Message) -> bytes:
    """Return the media type of a response without parameters; empty without one."""
    headers = {name.lower(): value for name, value in start.get("headers", ())}
    found: bytes = headers.get(b"content-type", b"")
    return found.partition(b";")[0].strip().lower()
