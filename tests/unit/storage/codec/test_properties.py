from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.storage.codec import properties
from mqstore.storage.codec.java_text import decode_utf8
from mqstore.storage.errors import PropertyError

texts = st.text(
    st.characters(codec="utf-8", exclude_characters="\0\x01\x02"), min_size=1, max_size=20
)


@given(st.dictionaries(texts, texts), st.booleans())
def test_decoding_gives_back_what_was_encoded(found: dict[str, str], trailing: bool) -> None:
    data = properties.encode(found, trailing_separator=trailing)
    assert properties.decode(data) == found
    assert data.endswith(b"\x02") == (trailing and bool(found))


@given(st.lists(st.sampled_from([b"a", b"\x01", b"\x02", b"\xc3\xa4", b"\xff", b"\xed\xa0"])))
def test_any_bytes_are_read_as_javas_text_split_at_the_separators(parts: list[bytes]) -> None:
    data = b"".join(parts)
    expected = {}
    for part in decode_utf8(data).split("\x02"):
        name, _, value = part.partition("\x01")
        if name and value:
            expected[name] = value
    assert properties.decode(data) == expected


def test_4_9_and_5_x_differ_in_the_last_separator_only() -> None:
    found = {"UNIQ_KEY": "k", "TAGS": "a"}
    assert properties.encode(found, trailing_separator=False) == b"UNIQ_KEY\x01k\x02TAGS\x01a"
    assert properties.encode(found, trailing_separator=True) == b"UNIQ_KEY\x01k\x02TAGS\x01a\x02"
    assert properties.encode({}, trailing_separator=True) == b""


@given(st.dictionaries(texts, texts), st.dictionaries(texts, texts | st.none()), st.booleans())
def test_replaced_properties_are_those_and_all_others_stay(
    found: dict[str, str], changes: dict[str, str | None], trailing: bool
) -> None:
    encoded = properties.encode(found, trailing_separator=trailing)
    changed = properties.replace(encoded, changes, trailing_separator=trailing)
    expected = {name: value for name, value in {**found, **changes}.items() if value is not None}
    assert properties.decode(changed) == expected
    assert changed.endswith(b"\x02") == (trailing and bool(expected))


def test_replacing_leaves_what_is_no_property_byte_for_byte() -> None:
    encoded = b"a\x01b\x01c\x02noseparator\x02\x02\xff\x01\xff\x02D\x011\x02D\x012"
    changed = properties.replace(encoded, {"D": "3"}, trailing_separator=False)
    assert changed == b"a\x01b\x01c\x02noseparator\x02\xff\x01\xff\x02D\x013"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("", "v"),
        ("n", ""),
        ("n\x01", "v"),
        ("n", "a\x01b"),
        ("n", "\x02"),
        ("n\x02", "v"),
        ("n", "\0"),
        ("\0", "v"),
        ("n", "\ud800"),
        ("\udfff", "v"),
    ],
)
def test_what_would_not_read_back_is_refused(name: str, value: str) -> None:
    with pytest.raises(PropertyError):
        properties.encode({"good": "one", name: value}, trailing_separator=False)


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"", {}),
        (b"\x02\x02", {}),
        (b"a\x01b", {"a": "b"}),
        (b"a\x01b\x02", {"a": "b"}),
        (b"\x02a\x01b\x02\x02c\x01d", {"a": "b", "c": "d"}),
        (b"a\x01", {}),
        (b"\x01b", {}),
        (b"ab", {}),
        (b"ab\x02c\x01d", {"c": "d"}),
        (b"a\x01\x02c\x01d", {"c": "d"}),
        (b"a\x01b\x01c", {"a": "b\x01c"}),
        (b"a\x01\x01", {"a": "\x01"}),
        (b"a\x01b\x02a\x01c", {"a": "c"}),
        (b"a\x01b\x02a\x01", {"a": "b"}),
        (b"a\x01\xed\xa0\x80", {"a": "\ufffd"}),
        (b"\xff\x01\xfe", {"\ufffd": "\ufffd"}),
        (b"a\x01\0", {"a": "\0"}),
    ],
)
def test_decoding_is_as_lenient_as_rocketmq(data: bytes, found: dict[str, str]) -> None:
    assert properties.decode(data) == found


@given(st.binary())
def test_decoding_never_fails(data: bytes) -> None:
    assert all(name and value for name, value in properties.decode(data).items())


@pytest.mark.parametrize(
    ("uniq_key", "keys", "indexed"),
    [
        (None, None, []),
        ("u", None, ["u"]),
        (None, "", []),
        (None, "a", ["a"]),
        ("u", "a b", ["u", "a", "b"]),
        ("u u", "  a  b ", ["u u", "a", "b"]),
        ("a", "a a\tb", ["a", "a", "a\tb"]),
    ],
)
def test_keys_are_indexed_after_the_unique_one_and_split_at_spaces(
    uniq_key: str | None, keys: str | None, indexed: list[str]
) -> None:
    assert properties.index_keys(uniq_key, keys) == indexed


@pytest.mark.parametrize(
    ("tags", "code"), [(None, 0), ("", 0), ("AaAa", 2031744), ("d", 100), ("日本語", 25921943)]
)
def test_tags_code_is_javas_hash_code(tags: str | None, code: int) -> None:
    assert properties.tags_code(tags) == code
