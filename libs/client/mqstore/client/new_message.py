"""Messages to store."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from datetime import datetime
from inspect import signature

from mqstore.client.checksums import crc32c
from mqstore.wire import produce
from mqstore.wire.times import parse_time


class NewMessage(produce.NewMessage):
    """A message to store. ``body`` is bytes or text (stored as UTF-8). Messages under one
    ``ordering_key`` go to one queue, in order. It is delivered at once, or after one of three
    delays: ``delay_s`` seconds, at ``deliver_at`` (a datetime with a zone, RFC 3339, or
    milliseconds since the epoch), or a ``delay_level`` of the store's messageDelayLevel."""

    def __init__(
        self,
        *,
        body: bytes | str = b"",
        tags: str | None = None,
        keys: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        queue_id: int | None = None,
        ordering_key: str | None = None,
        flag: int = 0,
        delay_level: int = 0,
        delay_s: float | None = None,
        deliver_at: datetime | str | int | None = None,
        uniq_key: str | None = None,
    ) -> None:
        if isinstance(deliver_at, datetime):
            deliver_at = parse_time(deliver_at.isoformat(timespec="milliseconds"))
        super().__init__(
            body=body if isinstance(body, str) else None,
            body_base64=None if isinstance(body, str) else base64.b64encode(body).decode(),
            tags=tags,
            keys=list(keys),
            properties=dict(properties or {}),
            queue_id=queue_id,
            ordering_key=ordering_key,
            flag=flag,
            delay_level=delay_level,
            delay_s=delay_s,
            deliver_at=deliver_at,
            uniq_key=uniq_key,
        )

    def as_json(self) -> dict[str, object]:
        """Return the JSON form, with the body's checksum and without fields with defaults."""
        checksum = crc32c(produce.body_bytes(self.body, self.body_base64))
        return self.model_dump(by_alias=True, exclude_defaults=True) | {"crc32c": checksum}


# Otherwise pydantic shows a signature with the JSON names of the fields.
NewMessage.__signature__ = signature(NewMessage.__init__).replace(
    parameters=list(signature(NewMessage.__init__).parameters.values())[1:]
)
