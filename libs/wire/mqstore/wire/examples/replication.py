"""Examples of replication for the API pages."""

from __future__ import annotations

from typing import Any, Final

FOLLOWER: Final[dict[str, Any]] = {
    "role": "follower",
    "following": {
        "leader": "10.1.2.3:10912",
        "state": "following",
        "reason": None,
        "sinceMs": 1795273270654,
        "receivedOffset": 1073744896,
        "durableOffset": 1073744896,
        "leaderOffset": 1073745920,
        "lagBytes": 1024,
        "damagedRecords": 0,
        "tablesCopiedAtMs": 1795273271000,
        "tablesReason": None,
    },
}
PROMOTED: Final[dict[str, Any]] = {"role": "leader", "following": None}
