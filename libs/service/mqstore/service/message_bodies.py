"""Forms of a message body in a reply: text, JSON or base64, truncated or inflated on request."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Final, Literal

import msgspec

from mqstore.service import message_structs
from mqstore.service.settings import Settings
from mqstore.service.structs import part_of
from mqstore.storage.errors import BodyNotInflatable
from mqstore.storage.formats import Record, SysFlag
from mqstore.storage.reads import compression_of, inflate
from mqstore.wire.messages import BodyShape

_UTF8_TAIL: Final = 3
"""Maximum number of bytes of an incomplete UTF-8 character at the end of a truncated body."""
NESTING_MARGIN: Final = 100
"""JSON nesting levels left to the reply that surrounds a body shown as JSON."""
_Shown: Final = part_of(message_structs.Message, lambda each: not each.required)
"""The fields of a message that a reply may leave out: the body, and facts about it."""


@dataclass(frozen=True, slots=True)
class InflateBounds:
    """Limits of an inflated body: its size in bytes, and its ratio to the compressed size."""

    size_max: int
    ratio_max: int

    @classmethod
    def of(cls, settings: Settings) -> InflateBounds:
        """Return the limits that the settings give."""
        return cls(settings.max_inflated_size, settings.max_inflate_ratio)

    def inflate(self, found: Record) -> bytes:
        """Return the body, inflated if it is compressed. Raises BodyNotInflatable."""
        compression = compression_of(found.sys_flag)
        body = found.body
        if compression is None:
            return body
        return inflate(body, compression, limit=min(self.size_max, len(body) * self.ratio_max))


@dataclass(frozen=True, slots=True)
class BodyForm:
    """How one request shows bodies. ``inflate`` is None for bodies as they are stored."""

    shape: BodyShape = BodyShape.AUTO
    max_bytes: int | None = None
    inflate: InflateBounds | None = None

    @property
    def inflates(self) -> bool:
        """Whether compressed bodies are inflated."""
        return self.inflate is not None

    def encode(self, found: Record) -> bytes:
        """Encode the body of a record, with the other fields of its message that a reply may leave
        out."""
        view = _Shown(checked_by=checked_by(found))  # type: ignore[call-arg]  # no other fields
        self._add_body(found, view)
        return msgspec.json.encode(view)

    def _add_body(self, found: Record, view: message_structs.Message) -> None:
        body = found.body
        if found.sys_flag & SysFlag.COMPRESSED:
            body = self._describe_compression(found, view)
        if self.shape is BodyShape.NONE:
            return
        if self.shape is BodyShape.JSON and self._add_json(body, view):
            return
        if self.max_bytes is not None and len(body) > self.max_bytes:
            view.body_truncated = True
            body = body[: self.max_bytes]
        self._add_text(body, view)

    def _describe_compression(self, found: Record, view: message_structs.Message) -> bytes:
        """Put the compression into the view. Return the body, inflated if the request wants it."""
        try:
            view.compression = compression_of(found.sys_flag)
            if self.inflate is not None:
                body = self.inflate.inflate(found)
                view.inflated_size = len(body)
                return body
        except BodyNotInflatable as error:
            view.body_problem = str(error)
        return found.body

    def _add_json(self, body: bytes, view: message_structs.Message) -> bool:
        if self.max_bytes is not None and len(body) > self.max_bytes:
            view.body_problem = "it is longer than bodyMax, so it is not shown as JSON"
            return False
        try:
            msgspec.json.decode(body)
            body.decode()
            if body.count(b"[") + body.count(b"{") > NESTING_MARGIN:
                msgspec.json.decode(b"[" * NESTING_MARGIN + body + b"]" * NESTING_MARGIN)
        except (ValueError, RecursionError) as error:
            view.body_problem = f"it is no JSON: {error}"
            return False
        view.body_json = msgspec.Raw(body)
        return True

    def _add_text(self, body: bytes, view: message_structs.Message) -> None:
        if self.shape is BodyShape.BASE64:
            view.body_base64 = base64.b64encode(body).decode()
            return
        if self.shape is BodyShape.TEXT:
            view.body = body.decode(errors="replace")
            return
        try:
            view.body = body.decode()
        except UnicodeDecodeError as error:
            is_cut = view.body_truncated is True and error.start >= len(body) - _UTF8_TAIL
            if is_cut and error.reason == "unexpected end of data":
                view.body = body[: error.start].decode()
            else:
                view.body_base64 = base64.b64encode(body).decode()


def checked_by(record: Record) -> Literal["record"] | None:
    """Return `record` if only the record's own checks vouch for it, else None."""
    return "record" if record.is_self_checked else None
