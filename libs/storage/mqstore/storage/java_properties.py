"""Reads and writes properties files as ``java.util.Properties`` does.

A name ends at the first ``=``, ``:`` or space; ``#`` and ``!`` begin comments; a line that ends in
a backslash continues on the next; ``\\uXXXX``, ``\\t``, ``\\n``, ``\\r``, ``\\f`` are escapes, and
any other ``\\c`` is c. Space at the end of a value belongs to it. Bytes are ISO-8859-1. Source: the
Java documentation; tests/compat/test_properties.py compares with Java itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

_NATURAL_LINE: Final = re.compile(r"[^\r\n]*(?:\r\n|\r|\n|$)")
_SPACE: Final = " \t\f"
_CONTINUED: Final = re.compile(r"(?<!\\)(?:\\\\)*\\$")
_NAME: Final = re.compile(r"(?:\\.|[^\\=: \t\f])*", re.DOTALL)
_SEPARATOR: Final = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.)|$)", re.DOTALL)
_ESCAPED: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_SURROGATES: Final = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_SPECIAL: Final = re.compile(r"^ |[\\\t\n\r\f]|[^\x20-\x7e]")


class Property(NamedTuple):
    """One setting, in the order of the file; a later one with the same name replaces it."""

    line: int
    """Number of its first line, from 1."""
    name: str
    value: str
    is_ascii: bool
    """False: programs that do not read ISO-8859-1 have another name or value."""


def parse(content: bytes, encoding: str = "iso-8859-1") -> Iterator[Property]:
    """Yield each property. Raises ValueError for what Java does not read, with the line's
    number."""
    for number, text in _logical_lines(content.decode(encoding, "surrogateescape")):
        name = _NAME.match(text)
        assert name is not None
        separator = _SEPARATOR.match(text, name.end())
        assert separator is not None
        try:
            value = _unescape(text[separator.end() :])
            yield Property(number, _unescape(name.group()), value, text.isascii())
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from None


def dump(properties: Mapping[str, str]) -> str:
    """Return a ``name=value`` line for each property, in ASCII, with the value's escapes."""
    return "".join(f"{name}={_escape(value)}\n" for name, value in properties.items())


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the number and text of each line with those that continue it; without comments."""
    parts: list[str] = []
    first = 0
    for number, match in enumerate(_NATURAL_LINE.finditer(text), 1):
        line = match.group().rstrip("\r\n").lstrip(_SPACE)
        if not parts:
            first = number
            if not line or line[0] in "#!":
                continue
        continues = _CONTINUED.search(line) is not None
        parts.append(line[:-1] if continues else line)
        if continues and match.end() < len(text):
            if not any(parts):
                parts = []  # as if the line were not there
            continue
        if any(parts):
            yield first, "".join(parts)
        parts = []


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    plain = _ESCAPE.sub(_character, text)
    return _SURROGATES.sub(_join, plain)


def _character(match: re.Match[str]) -> str:
    number, character = match.groups()
    if number is not None:
        return chr(int(number, 16))
    if character == "u":
        raise ValueError(r"\u is not followed by four hexadecimal digits")
    return _ESCAPED.get(character, character) or ""


def _join(pair: re.Match[str]) -> str:
    return pair.group().encode("utf-16", "surrogatepass").decode("utf-16")


def _escape(value: str) -> str:
    return _SPECIAL.sub(_escape_of, value)


def _escape_of(match: re.Match[str]) -> str:
    character = match.group()
    if character in " \\":
        return "\\" + character
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
