"""Parameters and replies that several routes of the query service share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Path as PathParameter
from fastapi import Query, Response

from mqstore.service.message_bodies import BodyShape
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
    """How the request wants message bodies shown."""

    shape: BodyShape
    max_bytes: int | None
    """Maximum number of bytes of each body; None for no limit."""
    inflate: bool


def body_options(
    body: Annotated[
        BodyShape,
        Query(description="How bodies are shown: `auto` is text if it is UTF-8, else base64."),
    ] = BodyShape.AUTO,
    body_max: Annotated[
        int | None,
        Query(
            alias="bodyMax", ge=0, le=BODY_MAX, description="Maximum number of bytes of each body."
        ),
    ] = None,
    inflate: Annotated[
        bool, Query(description="Inflate compressed bodies, up to maxInflatedSize.")
    ] = False,
) -> BodyOptions:
    """Return the request's body options. Used as a FastAPI dependency."""
    return BodyOptions(body, body_max, inflate)


def json_reply(body: bytes) -> Response:
    """Return encoded JSON as a response."""
    return Response(body, media_type="application/json")
