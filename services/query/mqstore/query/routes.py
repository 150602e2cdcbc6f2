"""Parameters and replies that several routes of the query service share."""

from __future__ import annotations

import re
from typing import Annotated, Final

from fastapi import Path as PathParameter
from fastapi import Response

from mqstore.service import problems
from mqstore.service.problems import Problem
from mqstore.wire.base import INT32_MAX

_INTEGER: Final = re.compile("[0-9]{1,19}")
QueueId = Annotated[
    int,
    PathParameter(
        ge=0,
        le=INT32_MAX,
        description="Queue, from 0.",
        openapi_examples={"first": {"value": 0}},
    ),
]


def path_integer(name: str, text: str, high: int) -> int:
    """Parse a path segment as an integer from 0 to ``high``. Raises Problem (400)."""
    if not _INTEGER.fullmatch(text) or int(text) > high:
        raise Problem(problems.BAD_PARAMETER, f"{name}: it should be an integer from 0 to {high}")
    return int(text)


def json_reply(body: bytes) -> Response:
    """Return encoded JSON as a response."""
    return Response(body, media_type="application/json")
