"""The page ``/docs``: Swagger UI over the OpenAPI document, from files of this service."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from typing import Final

from fastapi.openapi.docs import get_swagger_ui_html
from starlette.responses import HTMLResponse

_FILES: Final = "/static-offline-docs"
"""Path at which ``FastAPIOffline`` serves the files of Swagger UI."""
_SCRIPT: Final = re.compile(rb"<script>(.*?)</script>", re.DOTALL)


@cache
def page(title: str, openapi_url: str) -> HTMLResponse:
    """Return the page. Its policy allows its own script and the files of this service alone.

    Swagger UI sets styles of elements, and has images as data.
    """
    found = get_swagger_ui_html(
        openapi_url=openapi_url,
        title=f"{title} - Swagger UI",
        swagger_js_url=f"{_FILES}/swagger-ui-bundle.js",
        swagger_css_url=f"{_FILES}/swagger-ui.css",
        swagger_favicon_url=f"{_FILES}/favicon.png",
    )
    scripts = [
        f"'sha256-{base64.b64encode(hashlib.sha256(text).digest()).decode()}'"
        for text in _SCRIPT.findall(bytes(found.body).replace(b"\r\n", b"\n"))
    ]
    policy = (
        "default-src 'none'",
        f"script-src 'self' {' '.join(scripts)}",
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
    found.headers["content-security-policy"] = "; ".join(policy)
    found.headers["referrer-policy"] = "no-referrer"
    return found
