"""Examples of dead letters for the API pages; the tests send them."""

from __future__ import annotations

from typing import Any, Final

from mqstore.wire.examples.lookups import BY_KEY, MESSAGE

ID: Final = "7F00000100002A9F0000000000000188"
_RESULT: Final[dict[str, Any]] = {
    "id": ID,
    "status": "done",
    "topic": "orders",
    "copyId": "7F00000100002A9F0000000000000300",
    "detail": "",
}
DEAD_LETTERS: Final[dict[str, Any]] = BY_KEY | {
    "messages": [
        MESSAGE
        | {
            "topic": "%DLQ%billing",
            "offsetMsgId": ID,
            "reconsumeTimes": 3,
            "sourceTopic": "orders",
            "originMessageId": "7F00000100002A9F0000000000000000",
            "reason": "no stock",
            "deliveryAttempts": 3,
            "deadSince": 1795273329654,
        }
    ]
}
RESEND: Final[dict[str, Any]] = {"filter": {"topic": "orders", "reason": "no stock"}, "to": "group"}
RESENT: Final[dict[str, Any]] = {
    "group": "billing",
    "dryRun": False,
    "results": [_RESULT],
    "next": None,
}
PURGE: Final[dict[str, Any]] = {"before": 1795273329654, "dryRun": True}
PURGED: Final[dict[str, Any]] = {
    "group": "billing",
    "dryRun": True,
    "purged": 2,
    "queues": [{"shard": 0, "queueId": 0, "purged": 2}],
    "results": [],
    "next": None,
}
