"""Properties files as Java reads and writes them; tests/compat compares with Java itself."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.storage.java_properties import dump, parse


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"a=1\nb:2\rc 3\r\nd\t=\t4\ne", {"a": "1", "b": "2", "c": "3", "d": "4", "e": ""}),
        (b"# a=1\n ! b=2\n\n\f#c\na#b=1", {"a#b": "1"}),
        (b"a=1 \\\n   2\\\n\\\n3\nb=4\\\\\nc=5", {"a": "1 23", "b": "4\\", "c": "5"}),
        (b"a=x \t\nb= \\ y", {"a": "x \t", "b": " y"}),
        (b"\\u0061\\u00e9=\\t\\n\\r\\f\\q\\\\\\u002b", {"aé": "\t\n\r\fq\\+"}),
        (b"a=\\ud83d\\ude00", {"a": "😀"}),
        (b"a=\xe9\x85\x0b\x1c", {"a": "\xe9\x85\x0b\x1c"}),
        (b"a\\=b\\:c\\ d = e = f", {"a=b:c d": "e = f"}),
        (b"a=1\na=2", {"a": "2"}),
        (b"a=1\\", {"a": "1"}),
        (b"\\\n\\", {}),
    ],
)
def test_a_file_has_the_properties_that_java_reads(
    content: bytes, expected: dict[str, str]
) -> None:
    assert {each.name: each.value for each in parse(content)} == expected


def test_each_property_has_the_number_of_its_line() -> None:
    assert [each.line for each in parse(b"a=1\n\n#\nb=2\\\n3\nc=4")] == [1, 4, 6]


def test_an_escape_that_java_refuses_is_refused_with_its_line() -> None:
    with pytest.raises(ValueError, match=r"line 2: \\u is not followed by four hexadecimal"):
        list(parse(b"a=1\npath=C:\\users"))


@given(st.dictionaries(st.from_regex("[a-zA-Z]{1,5}", fullmatch=True), st.text(max_size=8)))
def test_what_is_written_is_read_again(properties: dict[str, str]) -> None:
    text = dump(properties)
    assert {each.name: each.value for each in parse(text.encode("ascii"))} == properties
