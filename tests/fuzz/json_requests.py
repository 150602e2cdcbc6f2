"""Produce requests in JSON, decoded, read and put."""

from __future__ import annotations

from typing import Final

from mqstore.service.problems import Problem
from mqstore.storage.errors import StorageError
from mqstore.storage.formats import encode_properties
from mqstore.wire.produce import body_bytes
from mqstore.writer import produce
from tests.fuzz import stores
from tests.fuzz.batches import ENTRIES, ROOM, Room, sends_at
from tests.fuzz.mutate import Mutator
from tests.unit.writer.json_requests import properties_of

SEEDS: Final = (
    b'{"messages":[{"body":"body","uniqKey":"U1","keys":["a","b"],"tags":"t"}]}',
    b'{"messages": [{"bodyBase64": "AAECAw==", "crc32c": 3644005027, "queueId": 0, "flag": -7}]}',
    b'{"durability":"sync","messages":[{"properties":{"a":"b","c":"d"},"delayLevel":0},{}]}',
    b'{"messages":[{"body":"\\u00e4\\ud83d\\ude00\\n\\"\\/"}],"durability":"async"}',
    b'{"messages":[{"body":"a","orderingKey":"order-1"},{"orderingKey":"order-1","tags":"t"}]}',
    '{"messages":[{"body":"日本語 é 😀","uniqKey":"U2"}]}'.encode(),
)


class JsonRequests:
    """A request is read as its model says; one that is refused has an error."""

    def __init__(self, mutator: Mutator) -> None:
        self._mutator = mutator
        self._room = Room()

    def one(self) -> None:
        """Mutate one request."""
        seed = self._mutator.random.choice(SEEDS)
        text = bytes(self._mutator.mutated(seed, (), SEEDS))
        end = self._room.end(ROOM, None)
        sends = sends_at(end, "Topic", stores.BORN, ROOM)
        try:
            request = produce.decode_request(text, ENTRIES, heavy=False)
            found = sends.read(request.messages, stores.BORN)
        except (Problem, StorageError) as refused:
            assert str(refused)
            self._room.is_untouched()
            return
        for message, read, key in zip(request.messages, found.messages(), found.keys, strict=True):
            assert read.body == body_bytes(message.body, message.body_base64)
            assert (read.flag, message.uniq_key in (None, key)) == (message.flag, True)
            if not found.has_delay:
                wanted = properties_of(message, key)
                assert read.properties == encode_properties(wanted, trailing_separator=True)
        self._room.require_put(sends, found)
