"""Produce requests in JSON: the general decoder's reading and the kernel's."""

from __future__ import annotations

from typing import Final

from tests.fuzz.mutate import Mutator
from tests.unit.writer.json_reading import read, require_same

SEEDS: Final = (
    b'{"messages":[{"body":"body","uniqKey":"U1","keys":["a","b"],"tags":"t"}]}',
    b'{"messages": [{"bodyBase64": "AAECAw==", "crc32c": 3644005027, "queueId": 0, "flag": -7}]}',
    b'{"durability":"sync","messages":[{"properties":{"a":"b","c":"d"},"delayLevel":0},{}]}',
    b'{"messages":[{"body":"\\u00e4\\ud83d\\ude00\\n\\"\\/"}],"durability":"async"}',
    b'{"messages":[{"body":"a","orderingKey":"order-1"},{"orderingKey":"order-1","tags":"t"}]}',
    '{"messages":[{"body":"日本語 é 😀","uniqKey":"U2"}]}'.encode(),
)


class JsonRequests:
    """The kernel reads from a request the same as the general decoder."""

    def __init__(self, mutator: Mutator) -> None:
        self._mutator = mutator

    def one(self) -> None:
        """Mutate one request."""
        seed = self._mutator.random.choice(SEEDS)
        text = bytes(self._mutator.mutated(seed, (), SEEDS))
        batch = read(text)
        if batch is not None:
            require_same(text, batch)
