"""What the services answer, as the client gives it. Unknown fields are kept out of the way."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from inspect import signature
from typing import Literal

from crc32c import crc32c
from pydantic import BaseModel, ConfigDict

from mqstore.wire import produce

Hidden = Literal["delayed", "half"]
"""Messages that stand elsewhere until they are delivered or decided."""


class NewMessage(produce.NewMessage):
    """A message to store. ``body`` is bytes or text (stored as UTF-8); ``delay_level`` 0 is at
    once, else a level of the store's messageDelayLevel."""

    def __init__(
        self,
        *,
        body: bytes | str = b"",
        tags: str | None = None,
        keys: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        queue_id: int | None = None,
        flag: int = 0,
        delay_level: int = 0,
        uniq_key: str | None = None,
    ) -> None:
        super().__init__(
            body=body if isinstance(body, str) else None,
            body_base64=None if isinstance(body, str) else base64.b64encode(body).decode(),
            tags=tags,
            keys=list(keys),
            properties=dict(properties or {}),
            queue_id=queue_id,
            flag=flag,
            delay_level=delay_level,
            uniq_key=uniq_key,
        )

    def as_json(self) -> dict[str, object]:
        """The request's form, with the body's checksum; fields with their defaults are left out."""
        checksum = crc32c(produce.body_bytes(self.body, self.body_base64))
        return self.model_dump(by_alias=True, exclude_defaults=True) | {"crc32c": checksum}


# Pydantic shows the names of fields in JSON.
NewMessage.__signature__ = signature(NewMessage.__init__).replace(
    parameters=list(signature(NewMessage.__init__).parameters.values())[1:]
)


class Download(BaseModel):
    """Bytes as they were sent: a body, or a part of the log."""

    model_config = ConfigDict(frozen=True)

    content: bytes
    total: int
    """Bytes of the whole that ``content`` is a part of."""
    tag: str | None = None
    """ETag: parts with the same one fit together."""


class Health(BaseModel):
    """What a probe answers, also with 503."""

    model_config = ConfigDict(extra="allow", frozen=True)

    status: str
    detail: str = ""
    stage: str = ""
    """Of the start: what is being done, and how much of it."""
    done: int = 0
    total: int = 0
