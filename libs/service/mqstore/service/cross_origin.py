"""Requests of web pages from other origins (CORS), which browsers refuse without these headers."""

from __future__ import annotations

import re
from typing import Final

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

from mqstore.service.configuration_error import ConfigurationError
from mqstore.service.settings import Settings

ANY: Final = "*"
_ORIGIN: Final = re.compile(r"https?://[A-Za-z0-9.:\[\]-]+")
METHODS: Final = ("DELETE", "GET", "HEAD", "PATCH", "POST", "PUT")
REQUEST_HEADERS: Final = (
    "Authorization",
    "Content-Type",
    "Idempotency-Key",
    "If-None-Match",
    "If-Range",
    "Last-Event-ID",
    "Range",
    "X-Mqstore-At-Least",
    "X-Request-Id",
)
REPLY_HEADERS: Final = (
    "Content-Range",
    "ETag",
    "Location",
    "Retry-After",
    "X-Mqstore-Crc",
    "X-Mqstore-Max",
    "X-Mqstore-Messages",
    "X-Mqstore-Min",
    "X-Mqstore-Next",
    "X-Mqstore-Shard",
    "X-Mqstore-Status",
    "X-Mqstore-Unreadable",
    "X-Request-Id",
)
"""Headers of replies that a page may read."""
PREFLIGHT_AGE_S: Final = 600
"""Seconds for which a browser keeps the reply to a preflight request."""


def check(settings: Settings) -> None:
    """Check ``corsAllowedOrigins``. Raises ConfigurationError."""
    for origin in settings.cors_allowed_origins.split():
        if settings.cors_allowed_origins != ANY and not _ORIGIN.fullmatch(origin):
            raise ConfigurationError(
                f"corsAllowedOrigins: {origin!r} is no origin; write it as"
                " https://console.example.com, without a path, or * alone"
            )
    if settings.cors_allowed_origins == ANY and not settings.tokens():
        raise ConfigurationError(
            "corsAllowedOrigins * without tokens lets every web page change the store; set tokens,"
            " or name the origins"
        )


def allow_origins(app: ASGIApp, settings: Settings) -> ASGIApp:
    """Return the application with the headers that pages of ``corsAllowedOrigins`` need."""
    origins = settings.cors_allowed_origins.split()
    if not origins:
        return app
    return CORSMiddleware(
        app,
        allow_origins=origins,
        allow_methods=METHODS,
        allow_headers=REQUEST_HEADERS,
        expose_headers=REPLY_HEADERS,
        max_age=PREFLIGHT_AGE_S,
    )
