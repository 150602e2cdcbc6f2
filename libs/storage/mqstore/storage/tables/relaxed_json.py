"""Rewrites JSON that was edited by hand, as fastjson reads it, into strict JSON.

RocketMQ's own files never have these forms: comments, a byte order mark, strings in single quotes,
names without quotes, a comma behind the last member, characters and escapes that strings of JSON
may not have, numbers with a plus sign, leading zeros or Java's suffix. Source: texts that both
libraries read (tests/compat/test_tables.py).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Final

_TOKEN: Final = re.compile(
    r"""(?P<space>[\s\ufeff]+|/\*(?:[^*]|\*(?!/))*\*/|//[^\n]*)"""
    r"""|(?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')"""
    r"""|(?P<mark>[{}\[\]:,])"""
    r"""|(?P<word>[^\s{}\[\]:,"'/\ufeff]+)""",
    re.DOTALL,
)
_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|([^ux]))", re.DOTALL)
_ESCAPED: Final = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_PLAIN: Final = frozenset("\"'\\/")
_NUMBER: Final = re.compile(r"([+-]?)0*(\d+)(\.\d+)?([eE][+-]?\d+)?[LBSFD]?")
_NAME: Final = re.compile(r"[A-Za-z_$][\w$]*")
_LAST_COMMAS: Final = frozenset({(",", "}"), (",", "]")})
_CONSTANTS: Final = frozenset({"true", "false", "null"})


def to_strict(text: str) -> str:
    """Return strict JSON, or JSON with bare integer keys. Raises ValueError for a text that has
    another form too; the caller's parser finds what is out of place."""
    tokens = list(_tokens(text))
    following = [*(token for _, token in tokens[1:]), ""]
    return "".join(
        _strict(kind, text, after)
        for (kind, text), after in zip(tokens, following, strict=False)
        if (text, after) not in _LAST_COMMAS
    )


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    """Yield the kind and text of each token but space and comments."""
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise ValueError(f"character {position} begins nothing that JSON has")
        if match.lastgroup is not None and match.lastgroup != "space":
            yield match.lastgroup, match.group()
        position = match.end()


def _strict(kind: str, token: str, following: str) -> str:
    if kind == "string":
        return json.dumps(_ESCAPE.sub(_character, token[1:-1]))
    if kind == "mark" or token in _CONSTANTS:
        return token
    number = _NUMBER.fullmatch(token)
    if number is not None:
        sign, digits, fraction, exponent = number.groups(default="")
        return f"{sign.removeprefix('+')}{digits}{fraction}{exponent}"
    if following == ":" and _NAME.fullmatch(token):
        return json.dumps(token)
    raise ValueError(f"{token[:80]!r} is no value")


def _character(match: re.Match[str]) -> str:
    unit, byte, character = match.groups()
    if character is None:
        return chr(int(unit or byte, 16))
    if character not in _PLAIN and character not in _ESCAPED:
        raise ValueError(f"\\{character} is no escape")
    return _ESCAPED.get(character, character)
