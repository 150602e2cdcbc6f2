"""Begins of transactions in JSON: the general decoder's reading and the kernel's."""

from __future__ import annotations

from typing import Final

from tests.fuzz.mutate import Mutator
from tests.unit.writer.begin_reading import read, require_same

SEEDS: Final = (
    b'{"producerGroup":"g","topic":"orders","messages":[{"body":"a","uniqKey":"U1"}]}',
    b'{"topic": "t", "messages": [{"bodyBase64": "AAECAw==", "queueId": 0, "flag": -7}],'
    b' "producerGroup": "a%|_-9"}',
    b'{"messages":[{"body":"\\u00e4\\ud83d\\ude00\\n","properties":{"a":"b"},"keys":["k"],'
    b'"tags":"t"}],"producerGroup":"g","topic":"t","checkImmunitySeconds":9}',
    '{"producerGroup":"g","topic":"t","messages":[{"body":"日本語 é 😀","uniqKey":"U2"}]}'.encode(),
)


class BeginRequests:
    """The kernel reads a begin as the general decoder does."""

    def __init__(self, mutator: Mutator) -> None:
        self._mutator = mutator

    def one(self) -> None:
        """Mutate one request."""
        seed = self._mutator.random.choice(SEEDS)
        text = bytes(self._mutator.mutated(seed, (), SEEDS))
        request = read(text)
        if request is not None:
            require_same(text, request)
