"""What the routes of the query service have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Path as PathParameter
from fastapi import Query, Response

from mqstore.query.bodies import BodyShape
from mqstore.wire.base import INT32_MAX
from mqstore.wire.limits import BODY_MAX

QueueId = Annotated[
    int,
    PathParameter(
        ge=0,
        le=INT32_MAX,
        description="Queue, from 0.",
        openapi_examples={"first": {"value": 0}},
    ),
]


@dataclass(frozen=True, slots=True)
class BodyOptions:
    """How bodies are to be shown."""

    shape: BodyShape
    max_bytes: int | None
    inflate: bool


def body_options(
    body: Annotated[
        BodyShape,
        Query(description="How bodies are shown: `auto` is text where it is UTF-8, else base64."),
    ] = BodyShape.AUTO,
    body_max: Annotated[
        int | None,
        Query(alias="bodyMax", ge=0, le=BODY_MAX, description="Bytes of each body, at most."),
    ] = None,
    inflate: Annotated[
        bool, Query(description="Show compressed bodies inflated, up to maxInflatedSize.")
    ] = False,
) -> BodyOptions:
    """A FastAPI dependency."""
    return BodyOptions(body, body_max, inflate)


def json_answer(body: bytes) -> Response:
    return Response(body, media_type="application/json")
