"""Reads and writes JSON as fastjson 1 (4.9) and fastjson2 (5.x) write RocketMQ's config files.

Both write maps with integer keys as bare integers, which no strict parser reads. A bare integer key
is an ``int`` key here. Files that were edited by hand are read as a broker reads them
(``relaxed_json``). Source: text that the two libraries, as shipped with 4.9.7 and 5.4.0, printed
with their pretty format.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

from mqstore.storage.layout import StoreFormat
from mqstore.storage.tables import relaxed_json

_BARE: Final = "\x00bare integer key\x00"
_BARE_ESCAPED: Final = json.dumps(_BARE)[1:-1]
_STRING_OR_BARE_KEY: Final = re.compile(
    r'"(?:[^"\\]|\\.)*"|(?<=[{,])\s*(-?[0-9]{1,19})\s*:', re.DOTALL
)
_DIGITS_MAX: Final = 20
"""Digits of a long of Java, with its sign."""
_SHORT: Final = {
    '"': '\\"',
    "\\": "\\\\",
    "\b": "\\b",
    "\t": "\\t",
    "\n": "\\n",
    "\f": "\\f",
    "\r": "\\r",
}
_SPECIAL_4_9: Final = re.compile('["\\\\\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]')
_SPECIAL_5_X: Final = re.compile('["\\\\\x00-\x1f\ud800-\udfff]')


class Printed(tuple[str, ...]):
    """An object whose members are printed already, each by ``dump_member``."""

    __slots__ = ()


def parse(text: str) -> dict[str | int, Any]:
    """Parse an object of JSON with bare integer keys, or with what else a broker reads.

    Raises ValueError.
    """
    try:
        found = _load_relaxed(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(found, dict):
        raise ValueError("not an object")
    return found


def dump(value: Any, store_format: StoreFormat) -> str:
    """Print a value as RocketMQ's own serializer for this format does."""
    out: list[str] = []
    _PRINTERS[store_format](out).write(value, 0)
    return "".join(out)


def dump_member(name: str | int, value: Any, store_format: StoreFormat) -> str:
    """Print a member of an object that is itself a member of the whole, with the space before."""
    out: list[str] = []
    _PRINTERS[store_format](out).next_member(name, value, 2)
    return "".join(out)


def _quote_bare(match: re.Match[str]) -> str:
    number = match.group(1)
    return match.group() if number is None else f'"{_BARE_ESCAPED}{int(number)}":'


def _load_relaxed(text: str) -> Any:
    try:
        return _load(text)
    except ValueError as error:
        try:
            return _load(relaxed_json.to_strict(text))
        except ValueError:
            raise error from None


def _load(text: str) -> Any:
    try:
        return json.loads(text, parse_int=_integer, parse_constant=_refuse_constant)
    except json.JSONDecodeError:  # at the first bare key, if there is one
        text = _STRING_OR_BARE_KEY.sub(_quote_bare, text)
    return json.loads(
        text,
        object_pairs_hook=_with_integer_keys,
        parse_int=_integer,
        parse_constant=_refuse_constant,
    )


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no number")


def _integer(digits: str) -> int:
    if len(digits) > _DIGITS_MAX:
        raise ValueError(f"an integer of {len(digits)} digits, and Java's have at most 64 bits")
    return int(digits)


def _with_integer_keys(pairs: list[tuple[str, Any]]) -> dict[str | int, Any]:
    return {_key(name): value for name, value in pairs}


def _key(name: str) -> str | int:
    return int(name.removeprefix(_BARE)) if name.startswith(_BARE) else name


class _Fastjson2:
    """Prints each member on its own line, with tabs, and an empty object or array over two
    lines."""

    special = _SPECIAL_5_X
    hex_digits = "04x"

    def __init__(self, out: list[str]) -> None:
        self.out = out

    def write(self, value: Any, depth: int) -> None:
        if isinstance(value, dict):
            self.object(value, depth)
        elif isinstance(value, Printed):
            self.printed(value, depth)
        elif isinstance(value, list):
            self.array(value, depth)
        elif isinstance(value, str):
            self.out.append(self.string(value))
        else:
            self.out.append(json.dumps(value))

    def object(self, value: dict[str | int, Any], depth: int) -> None:
        self.out.append("{")
        for number, (name, member) in enumerate(value.items()):
            self.out.append("," if number else "")
            self.next_member(name, member, depth + 1)
        if not value:
            self.new_line(depth + 1)
        self.new_line(depth)
        self.out.append("}")

    def printed(self, members: Printed, depth: int) -> None:
        if not members:
            self.object({}, depth)
            return
        self.out += ("{", ",".join(members))
        self.new_line(depth)
        self.out.append("}")

    def array(self, value: list[Any], depth: int) -> None:
        self.out.append("[")
        for number, element in enumerate(value):
            self.out.append("," if number else "")
            self.new_line(depth + 1)
            self.write(element, depth + 1)
        if not value:
            self.new_line(depth + 1)
        self.new_line(depth)
        self.out.append("]")

    def next_member(self, name: str | int, value: Any, depth: int) -> None:
        self.new_line(depth)
        self.member(name, value, depth)

    def member(self, name: str | int, value: Any, depth: int) -> None:
        self.out.append(f"{name}:" if isinstance(name, int) else self.string(name) + ":")
        self.write(value, depth)

    def new_line(self, depth: int) -> None:
        self.out.append("\n" + "\t" * depth)

    def string(self, text: str) -> str:
        return f'"{self.special.sub(self.escape, text)}"'

    def escape(self, match: re.Match[str]) -> str:
        character = match.group()
        return _SHORT.get(character) or f"\\u{ord(character):{self.hex_digits}}"


class _Fastjson1(_Fastjson2):
    """As ``_Fastjson2``, but empty containers take one line and integer keys begin no line."""

    special = _SPECIAL_4_9
    hex_digits = "04X"

    def object(self, value: dict[str | int, Any], depth: int) -> None:
        if not value:
            self.out.append("{}")
            return
        self.out.append("{")
        for number, (name, member) in enumerate(value.items()):
            self.out.append("," if number else "")
            self.next_member(name, member, depth + 1)
        self.new_line(depth)
        self.out.append("}")

    def next_member(self, name: str | int, value: Any, depth: int) -> None:
        if isinstance(name, str):
            self.new_line(depth)
        self.member(name, value, depth)

    def array(self, value: list[Any], depth: int) -> None:
        if value:
            super().array(value, depth)
        else:
            self.out.append("[]")


_PRINTERS: Final = {StoreFormat.V4_9: _Fastjson1, StoreFormat.V5_X: _Fastjson2}
