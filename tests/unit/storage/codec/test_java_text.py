from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.storage.codec.java_text import decode_utf8, index_hash, string_hash
from tests.unit.storage import kernel_model as model

# What OpenJDK 17 makes of malformed UTF-8; r stands for U+FFFD.
JAVA_DECODES = {
    "eda080": "r",
    "edbfbf": "r",
    "eda0": "r",
    "eda041": "rA",
    "eda0edb0": "rr",
    "ed80": "r",
    "c080": "rr",
    "c2": "r",
    "c241": "rA",
    "e08080": "rrr",
    "e0a0": "r",
    "e18041": "rA",
    "f0908041": "rA",
    "f08080": "rrr",
    "f4908080": "rrrr",
    "f5808080": "rrrr",
    "ff41fe": "rAr",
    "80": "r",
    "41eda08042": "ArB",
}


@pytest.mark.parametrize(("data", "text"), JAVA_DECODES.items())
def test_malformed_utf8_is_replaced_as_java_does(data: str, text: str) -> None:
    assert decode_utf8(bytes.fromhex(data)) == text.replace("r", "\ufffd")


@given(st.text())
def test_valid_utf8_is_decoded_as_it_is(text: str) -> None:
    assert decode_utf8(text.encode()) == text


@given(st.binary())
def test_decoding_never_fails_and_keeps_ascii(data: bytes) -> None:
    kept = [byte for byte in data if byte < 0x80]
    assert [ord(c) for c in decode_utf8(data) if c < "\x80"] == kept


@pytest.mark.parametrize(
    ("text", "hashed"),
    [
        ("", 0),
        ("a", 97),
        ("AaAa", 2031744),
        ("BBBB", 2031744),
        ("AaAaé漢😀", -506403076),
        ("polygenelubricants", -(2**31)),
    ],
)
def test_string_hash_is_javas(text: str, hashed: int) -> None:
    assert string_hash(text) == hashed


@given(st.text(st.characters()))
def test_string_hash_is_the_sum_over_utf16_units(text: str) -> None:
    assert string_hash(text) == model.signed(model.java_hash(text))


def test_half_a_surrogate_pair_is_hashed_as_its_unit() -> None:
    assert string_hash("\ud800") == 0xD800


@given(st.text())
def test_index_hash_is_never_negative(text: str) -> None:
    assert index_hash(text) == model.index_hash(text)
    assert 0 <= index_hash(text) < 2**31


def test_index_hash_of_the_value_without_an_absolute_one_is_0() -> None:
    assert index_hash("polygenelubricants") == 0
