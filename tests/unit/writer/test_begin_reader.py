"""The kernel encodes a begin as the slow path does."""

from __future__ import annotations

import json

from hypothesis import given, settings

from tests.fuzz.begin_requests import SEEDS
from tests.long_runs import examples
from tests.unit.writer.begin_reading import read, require_same
from tests.unit.writer.begin_requests import begins


@settings(max_examples=examples(300), deadline=None)
@given(begins())
def test_a_begin_is_encoded_as_the_general_way_does(text: bytes) -> None:
    request = read(text)
    if request is not None:
        require_same(text, request)


def test_the_seeds_of_the_fuzzer_are_encoded_but_for_one() -> None:
    assert [read(text) is not None for text in SEEDS] == [True, True, False, True]
    for text in SEEDS:
        json.loads(text)
