"""The text in which a leader of mqstore sends changes of its tables, in frames of ``ha_frames``."""

from __future__ import annotations

import msgspec

from mqstore.storage.replication.ha_frames import TABLES_SIZE_MAX, FrameInvalid
from mqstore.storage.replication.table_feed import TableBatch

_decode = msgspec.json.Decoder(TableBatch).decode


class TablesTooLong(Exception):
    """The tables are longer than a follower takes."""


def encode(batch: TableBatch) -> bytes:
    """Return the text of changes. Raises TablesTooLong."""
    text = msgspec.json.encode(batch)
    if len(text) > TABLES_SIZE_MAX:
        raise TablesTooLong(f"the tables have {len(text)} bytes; {TABLES_SIZE_MAX} can be sent")
    return text


def decode(text: bytes) -> TableBatch:
    """Return the changes of a text. Raises FrameInvalid."""
    try:
        return _decode(text)
    except msgspec.MsgspecError as error:
        raise FrameInvalid(f"the leader's tables cannot be read: {error}") from None
