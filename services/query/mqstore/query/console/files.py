"""The files of the console, as a browser gets them: from memory, compressed, with a strong ETag."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from mqstore.service.problems import NOT_FOUND, Problem

ROOT: Final = Path(__file__).parent / "static"
INDEX: Final = "index.html"
_MEDIA_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
"""Types of the files that are served; others, as licences, are not."""
_POLICY: Final = (
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self'",
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
    "require-trusted-types-for 'script'",
    "trusted-types 'none'",
)
HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": "; ".join(_POLICY),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
    "Cache-Control": "no-cache",
    "Vary": "Accept-Encoding",
}
"""``no-cache``: a browser keeps a file, and uses it after the ETag was found to be the same."""


@dataclass(frozen=True, slots=True)
class StaticFile:
    """One file, plain and compressed."""

    media_type: str
    plain: bytes
    compressed: bytes
    digest: str

    @classmethod
    def read(cls, path: Path) -> StaticFile:
        """Read and compress a file."""
        plain = path.read_bytes()
        digest = hashlib.sha256(plain).hexdigest()[:32]
        return cls(_MEDIA_TYPES[path.suffix], plain, gzip.compress(plain, mtime=0), digest)

    def respond(self, request: Request) -> Response:
        """Return the file, or 304 for a browser that has it."""
        is_compressed = "gzip" in request.headers.get("accept-encoding", "")
        etag = f'"{self.digest}-gzip"' if is_compressed else f'"{self.digest}"'
        headers = {**HEADERS, "ETag": etag}
        if etag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        if is_compressed:
            headers["Content-Encoding"] = "gzip"
        body = self.compressed if is_compressed else self.plain
        return Response(body, headers=headers, media_type=self.media_type)


@cache
def load(root: Path = ROOT) -> dict[str, StaticFile]:
    """Read all files below ``root``, by their paths. They are part of the installed package."""
    paths = (path for path in root.rglob("*") if path.suffix in _MEDIA_TYPES)
    return {path.relative_to(root).as_posix(): StaticFile.read(path) for path in paths}


def find(files: Mapping[str, StaticFile], path: str) -> StaticFile:
    """Return the file of a path; the name of a page, which has no dot, is that of the index.

    Raises Problem (404).
    """
    found = files.get(path)
    if found is None and "." not in path and "/" not in path:
        found = files[INDEX]
    if found is None:
        raise Problem(NOT_FOUND, f"the console has no file {path[:200]!r}; it begins at /ui/")
    return found
