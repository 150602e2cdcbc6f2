"""Compares and converts values of an expression as Java does.

A value is None, a bool, an int (Java's Integer), a ``Long``, a float (Double) or a str. Source:
ComparisonExpression of rocketmq-filter 4.9.7 and 5.4.0, and the classes of java.lang that it uses.
"""

from __future__ import annotations

import math
import re
from typing import Final


class Long(int):
    """A Java Long: a literal beyond the range of an Integer."""


Value = None | bool | int | float | str

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1
_INTEGER: Final = re.compile(r"([+-]?)(\d+)")
_DIGITS_MAX: Final = 19
"""Maximum number of digits of a Long, without leading zeros."""
_DECIMAL: Final = re.compile(
    r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?P<suffix>[fFdD]?)"
)
_HEXADECIMAL: Final = re.compile(
    r"[+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]{1,9}(?P<suffix>[fFdD]?)"
)
_NAMED: Final = re.compile(r"([+-]?)(NaN|Infinity)")
_TRIMMED: Final = "".join(map(chr, range(0x21)))


class EvaluationError(Exception):
    """An error that RocketMQ's evaluation throws; the message then does not match."""


def compare(left: Value, right: Value) -> int:
    """Compare two values that are not None: below 0, 0 or above 0, as RocketMQ orders them.

    Strings are converted to the other's kind; each of two incompatible kinds is below the other.
    Raises EvaluationError where Java throws.
    """
    if type(left) is type(right):
        return _order(left, right)
    if isinstance(left, bool):
        if isinstance(right, str):
            raise EvaluationError("a boolean cannot be compared with a string")
        return -1
    if isinstance(left, str):
        return _order(_convert(left, type(right)), right)
    if isinstance(right, str):
        return _order(left, _convert(right, type(left)))
    return -1 if isinstance(right, bool) else _order(left, right)


def as_double(text: str) -> float:
    """Convert as Double.valueOf does. Raises EvaluationError."""
    trimmed = text.strip(_TRIMMED)
    if (named := _NAMED.fullmatch(trimmed)) is not None:
        size = float("nan") if named[2] == "NaN" else float("inf")
        return -size if named[1] == "-" else size
    if (found := _DECIMAL.fullmatch(trimmed)) is not None:
        return float(trimmed.removesuffix(found["suffix"]))
    if (found := _HEXADECIMAL.fullmatch(trimmed)) is not None:
        return _hexadecimal(trimmed.removesuffix(found["suffix"]))
    raise EvaluationError(f"{text[:50]!r} is no number")


def as_integer(text: str, maximum: int) -> int:
    """Convert as Integer.valueOf or Long.valueOf does, by the greatest value.

    Raises EvaluationError.
    """
    found = _INTEGER.fullmatch(text)
    if found is None or (not text.isascii() and max(text) > "\uffff"):
        raise EvaluationError(f"{text[:50]!r} is no integer")
    digits = found[2]
    if not digits.isascii():
        digits = "".join(str(int(digit)) for digit in digits)
    digits = digits.lstrip("0")
    if len(digits) <= _DIGITS_MAX:
        value = int(digits or "0") * (-1 if found[1] == "-" else 1)
        if -maximum - 1 <= value <= maximum:
            return value
    raise EvaluationError(f"{text[:50]!r} is beyond {maximum}")


def _hexadecimal(text: str) -> float:
    try:
        return float.fromhex(text)
    except OverflowError:
        return float("-inf" if text.startswith("-") else "inf")


def _convert(text: str, kind: type) -> Value:
    if kind is bool:
        return text.lower() == "true"
    if kind is float:
        return as_double(text)
    return as_integer(text, LONG_MAX if kind is Long else INT_MAX)


def _order(left: Value, right: Value) -> int:
    """Compare two strings, booleans or numbers as compareTo does."""
    if isinstance(left, str) and isinstance(right, str):
        return _sign(left.encode("utf-16-be"), right.encode("utf-16-be"))
    assert isinstance(left, bool | int | float)
    assert isinstance(right, bool | int | float)
    if isinstance(left, float) or isinstance(right, float):
        return _order_doubles(float(left), float(right))
    return (left > right) - (left < right)


def _order_doubles(left: float, right: float) -> int:
    """Compare as Double.compareTo does: -0.0 is below 0.0, and NaN equals itself above all
    others."""
    if left < right or left > right:
        return -1 if left < right else 1
    return _sign(_sort_key(left), _sort_key(right))


def _sort_key(value: float) -> bytes:
    """A key that is equal where Double.equals is; -0.0 is below 0.0, NaN above all others."""
    if math.isnan(value):
        return b"2"
    return b"0" if math.copysign(1, value) < 0 else b"1"


def _sign(left: bytes, right: bytes) -> int:
    return (left > right) - (left < right)
