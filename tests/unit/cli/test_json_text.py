"""JSON of users is read strictly."""

from __future__ import annotations

import pytest

from mqstore.cli.json_text import parse_json


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"properties":{"a":"1","a":"2"}}', "'a' twice in one object: keep one"),
        ('{"flag":NaN}', "NaN, which JSON has not"),
        ('{"flag":-Infinity}', "-Infinity, which JSON has not"),
        ("1" * 30, "an integer of 30 digits"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_a_text_that_programs_read_differently_is_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_json(text)
