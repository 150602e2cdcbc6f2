"""The JSON of fastjson 1 and fastjson2. Expected texts were printed by the two libraries."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.storage.layout import StoreFormat
from mqstore.storage.tables.java_json import dump, parse

V4, V5 = StoreFormat.V4_9, StoreFormat.V5_X

TREE: dict[str | int, object] = {
    "d": 1.5,
    "list": [1, 2, []],
    "e": {},
    "n": [{"x": 1}],
    "offsetTable": {"TopicB@g1": {0: 9, 1: 5}, "A@g2": {}},
}
TEXT_4_9 = (
    '{\n\t"d":1.5,\n\t"list":[\n\t\t1,\n\t\t2,\n\t\t[]\n\t],\n\t"e":{},\n'
    '\t"n":[\n\t\t{\n\t\t\t"x":1\n\t\t}\n\t],\n'
    '\t"offsetTable":{\n\t\t"TopicB@g1":{0:9,1:5\n\t\t},\n\t\t"A@g2":{}\n\t}\n}'
)
TEXT_5_X = (
    '{\n\t"d":1.5,\n\t"list":[\n\t\t1,\n\t\t2,\n\t\t[\n\t\t\t\n\t\t]\n\t],\n\t"e":{\n\t\t\n\t},\n'
    '\t"n":[\n\t\t{\n\t\t\t"x":1\n\t\t}\n\t],\n'
    '\t"offsetTable":{\n\t\t"TopicB@g1":{\n\t\t\t0:9,\n\t\t\t1:5\n\t\t},\n'
    '\t\t"A@g2":{\n\t\t\t\n\t\t}\n\t}\n}'
)

keys = st.text(max_size=5) | st.integers(-(2**31), 2**31 - 1)
trees = st.dictionaries(
    keys,
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
        max_leaves=12,
    ),
)


@pytest.mark.parametrize(("store_format", "text"), [(V4, TEXT_4_9), (V5, TEXT_5_X)])
def test_text_is_that_of_the_library(store_format: StoreFormat, text: str) -> None:
    assert dump(TREE, store_format) == text
    assert parse(text) == TREE


@pytest.mark.parametrize(
    ("store_format", "text"),
    [
        (V4, r'"\u0000\u000B\b\t\"\\/\u007F\u0080\u2028é😀' + "'<>&" + '"'),
        (V5, r'"\u0000\u000b\b\t\"\\/' + "\x7f\x80\u2028é😀'<>&" + '"'),
    ],
)
def test_characters_are_escaped_as_the_library_does(store_format: StoreFormat, text: str) -> None:
    value = "\0\x0b\b\t\"\\/\x7f\x80\u2028é😀'<>&"

    assert dump(value, store_format) == text


@given(trees, st.sampled_from([V4, V5]))
def test_what_is_written_is_read_back(
    tree: dict[str | int, object], store_format: StoreFormat
) -> None:
    assert parse(dump(tree, store_format)) == tree


@given(trees)
def test_strict_json_is_read_too(tree: dict[str | int, object]) -> None:
    named = {str(name): value for name, value in tree.items()}
    assert json.loads(json.dumps(named)) == parse(json.dumps(named))


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "1", '{"a":}', "{1:2,,}", '{"a":"', "{a:b}", "[" * 100_000, "{-:1}"]
)
def test_what_is_no_object_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse(text)


@given(trees.filter(bool), st.sampled_from([V4, V5]), st.data())
def test_a_text_cut_in_two_is_never_read(
    tree: dict[str | int, object], store_format: StoreFormat, data: st.DataObject
) -> None:
    text = dump(tree, store_format)
    with pytest.raises(ValueError, match=r".+"):
        parse(text[: data.draw(st.integers(0, len(text) - 1))])


def test_text_in_strings_that_looks_like_a_bare_key_stays_text() -> None:
    assert parse('{"a":"{1:2,3:4}","b\\"{5:":6,7 :8, 9:"x"}') == {
        "a": "{1:2,3:4}",
        'b"{5:': 6,
        7: 8,
        9: "x",
    }
