"""YAML of plain values: mappings, sequences, text, numbers, truth values and null."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

_PLAIN_KEY: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_RESERVED: Final = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
_UNPRINTABLE: Final = re.compile(
    "[^\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]"
)
"""Characters that YAML allows only escaped, or that end a line."""


def yaml_lines(value: Any) -> Iterator[str]:
    """Yield the lines of a document."""
    if isinstance(value, Mapping) and value:
        for key, each in value.items():
            yield from _entry(f"{_key(str(key))}:", each)
    elif _is_list(value) and value:
        for each in value:
            yield from yaml_item(each)
    else:
        yield _scalar(value)


def yaml_item(value: Any) -> Iterator[str]:
    """Yield the lines of one item of a sequence."""
    lines = yaml_lines(value)
    yield f"- {next(lines)}"
    for line in lines:
        yield f"  {line}"


def _entry(head: str, value: Any) -> Iterator[str]:
    if value and (isinstance(value, Mapping) or _is_list(value)):
        yield head
        for line in yaml_lines(value):
            yield f"  {line}"
    else:
        yield f"{head} {_scalar(value)}"


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _key(name: str) -> str:
    is_plain = _PLAIN_KEY.fullmatch(name) and name.lower() not in _RESERVED
    return name if is_plain else _scalar(name)


def _scalar(value: Any) -> str:
    if isinstance(value, str):
        return _UNPRINTABLE.sub(_escaped, json.dumps(value, ensure_ascii=False))
    if isinstance(value, float) and value != value:
        return ".nan"
    if isinstance(value, float) and abs(value) == float("inf"):
        return ".inf" if value > 0 else "-.inf"
    text = json.dumps(list(value) if _is_list(value) else value)
    return text.replace("e", ".0e") if type(value) is float and "." not in text else text


def _escaped(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"
