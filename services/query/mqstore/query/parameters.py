"""Parser of the query parameters of hot routes, which FastAPI does not parse."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Final

from mqstore.query.routes import BodyOptions
from mqstore.service import problems
from mqstore.service.message_bodies import BodyShape
from mqstore.service.problems import Problem
from mqstore.wire.limits import BODY_MAX

_INTEGER: Final = re.compile(r"-?[0-9]{1,19}")
_NUMBER: Final = re.compile(r"[0-9]{1,9}(\.[0-9]{0,9})?")
_BOOLEANS: Final = {"true": True, "1": True, "false": False, "0": False}


class Parameters:
    """The query parameters of one request. Every method raises Problem (400) for a wrong value."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = given

    def text(self, name: str) -> str | None:
        """Return a parameter as text, None if it is absent."""
        return self._given.get(name)

    def integer(self, name: str, low: int, high: int) -> int | None:
        """Return an integer from ``low`` to ``high``, None if it is absent."""
        text = self._given.get(name)
        if text is None:
            return None
        if not _INTEGER.fullmatch(text) or not low <= int(text) <= high:
            raise _bad_parameter(name, f"it should be an integer from {low} to {high}")
        return int(text)

    def seconds(self, name: str, high: int) -> float:
        """Return a number of seconds from 0 to ``high``, 0 if it is absent."""
        text = self._given.get(name, "0")
        if not _NUMBER.fullmatch(text) or not 0 <= float(text) <= high or math.isnan(float(text)):
            raise _bad_parameter(name, f"it should be a number from 0 to {high}")
        return float(text)

    def body(self) -> BodyOptions:
        """Return how the request wants bodies shown."""
        shape = self._given.get("body", BodyShape.AUTO)
        if shape not in set(BodyShape):
            raise _bad_parameter("body", f"it should be one of {', '.join(BodyShape)}")
        inflate = self._given.get("inflate", "false")
        if inflate not in _BOOLEANS:
            raise _bad_parameter("inflate", "it should be true or false")
        most = self.integer("bodyMax", 0, BODY_MAX)
        return BodyOptions(BodyShape(shape), most, _BOOLEANS[inflate])


def path_integer(name: str, text: str, high: int) -> int:
    """Parse a path segment as an integer from 0 to ``high``. Raises Problem (400)."""
    if not _INTEGER.fullmatch(text) or not 0 <= int(text) <= high:
        raise _bad_parameter(name, f"it should be an integer from 0 to {high}")
    return int(text)


def _bad_parameter(name: str, why: str) -> Problem:
    return Problem(problems.BAD_PARAMETER, f"{name}: {why}")
