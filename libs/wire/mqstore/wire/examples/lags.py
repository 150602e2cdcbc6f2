"""Examples of the lags of consumer groups, for the API pages."""

from __future__ import annotations

from typing import Any, Final

OFFSETS: Final[dict[str, Any]] = {
    "source": "file",
    "savedAt": 1795273268000,
    "ageMs": 1654,
    "writer": "alive",
}
_QUEUE: Final[dict[str, Any]] = {
    "queueId": 0,
    "shard": 0,
    "committed": 42,
    "minOffset": 0,
    "maxOffset": 50,
    "lag": 8,
    "expired": 0,
    "lagMs": 2500,
    "nextStoreTimestamp": 1795273267154,
    "lastStoreTimestamp": 1795273267150,
}
_TOPIC: Final[dict[str, Any]] = {
    "topic": "orders",
    "lag": 8,
    "expired": 0,
    "expiredTotal": 0,
    "lagMs": 2500,
}
_STATES: Final[dict[str, Any]] = {
    "waiting": 5,
    "leased": 2,
    "retrying": 0,
    "acknowledged": 1,
    "delayed": 3,
}
LAG: Final[dict[str, Any]] = {
    "group": "billing",
    "lag": 8,
    "deadLetters": 0,
    "states": _STATES,
    "topics": [_TOPIC | {"queues": [_QUEUE]}],
    "offsets": OFFSETS,
    "shard": 0,
}
LAGS: Final[dict[str, Any]] = {
    "groups": [
        {
            "group": "billing",
            "lag": 8,
            "deadLetters": 0,
            "states": _STATES,
            "topics": [_TOPIC],
        }
    ],
    "next": None,
    "offsets": OFFSETS,
    "shard": 0,
}
