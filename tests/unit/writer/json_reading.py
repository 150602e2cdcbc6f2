"""A produce request in JSON as the kernel reads it, and as the general decoder does."""

from __future__ import annotations

from typing import Final

from mqstore.storage.formats import Host, StoreFormat, decode_properties
from mqstore.storage.host import production_seams
from mqstore.storage.puts import JsonBatch, Message, UniqueKeys, decode_batch
from mqstore.storage.settings import DelayLevels
from mqstore.writer import produce

HOST: Final = Host(b"\x7f\0\0\1", 10911)
ORIGIN: Final = produce.Origin("orders", 0, HOST, HOST, 1_700_000_000_000)
LEVELS: Final = DelayLevels("1s 5s")
KEYS: Final = UniqueKeys(production_seams())
COUNT_MAX: Final = 20


def in_general(text: bytes, keys: list[str]) -> tuple[list[Message], int | None, str | None]:
    """Decode a request in the general way; raises its error reply. ``keys`` replace
    generated ones."""
    request = produce.decode_request(text, COUNT_MAX)
    queue_id = produce.requested_queue(request.messages)
    made = iter(keys)
    built = []
    for each in request.messages:
        if each.uniq_key is None:
            each.uniq_key = next(made)
        built.append(produce.build(each, ORIGIN, KEYS, StoreFormat.V4_9, LEVELS)[0])
    return built, queue_id, request.durability


def read(text: bytes, store_format: StoreFormat = StoreFormat.V4_9) -> JsonBatch | None:
    KEYS.next()  # of this month
    reader = produce.json_reader(store_format, KEYS, COUNT_MAX)
    return reader.read(text, produce.now_ms())


def decoded(batch: JsonBatch, store_format: StoreFormat = StoreFormat.V4_9) -> list[Message]:
    return decode_batch(batch.data, ORIGIN.message(b"", b"", 0), store_format=store_format)


def require_same(text: bytes, batch: JsonBatch) -> None:
    """Assert that the general decoder makes the same of a request that the kernel read."""
    found = decoded(batch)
    keys = [decode_properties(each.properties)["UNIQ_KEY"] for each in found]
    built, queue_id, durability = in_general(text, keys)
    assert found == built, text
    assert batch.queue_id == (-1 if queue_id is None else queue_id), text
    assert batch.durability == durability, text
