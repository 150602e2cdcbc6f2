"""Examples of an index rebuild for the API pages; the tests send them."""

from __future__ import annotations

from typing import Any, Final

PLAN: Final[dict[str, Any]] = {
    "parts": 2,
    "files": [
        {
            "first": 0,
            "items": 3000,
            "begin": [0, 1795349144061],
            "end": [3145000, 1795349150000],
            "carriedMs": 0,
        }
    ],
    "starts": [0, 1572864],
    "firsts": [0, 1500, 3000],
}
RUNNING: Final[dict[str, Any]] = {
    "id": "5f0c2a1e5f0c2a1e",
    "owner": "index-rebuild job mqstore-index-rebuild-29381",
    "shard": "0",
    "storeId": "b4a1c1de6f1c4b2c8d0c9a7e4f0d1e2a",
    "format": "5.x",
    "tags": True,
    "hashSlots": 5000000,
    "indexNum": 20000000,
    "from": 0,
    "to": 3145728,
    "segments": [{"name": "00000000000000000000", "start": 0, "end": 3145728}],
    "sinceMs": 1795349144061,
    "expiresMs": 1795349204061,
    "diskRatio": 75,
    "items": 0,
    "parts": 0,
    "partsPlanned": 0,
}
ENDED: Final[dict[str, Any]] = {
    "id": "5f0c2a1e5f0c2a1e",
    "owner": "index-rebuild job mqstore-index-rebuild-29381",
    "outcome": "published",
    "sinceMs": 1795349144061,
    "endedMs": 1795349154061,
    "items": 3000,
    "files": 1,
    "bytes": 20060040,
    "seconds": 10.0,
}
PUBLISHED: Final[dict[str, Any]] = {
    "id": "5f0c2a1e5f0c2a1e",
    "published": ["20261122153005124"],
    "replaced": ["20261122153005123"],
    "items": 3000,
    "bytes": 20060040,
}
