"""Examples of members of ordered groups for the API pages; the tests send them."""

from __future__ import annotations

from typing import Any, Final

MEMBER_SPEC: Final[dict[str, Any]] = {"topics": ["orders"], "sessionS": 30}
MEMBER: Final[dict[str, Any]] = {
    "group": "billing-ordered",
    "member": "billing-0",
    "topics": ["orders"],
    "sessionExpires": 1795273329654,
    "queues": [{"topic": "orders", "shard": 0, "queueId": 0, "epoch": 17}],
    "leaving": [{"topic": "orders", "shard": 0, "queueId": 1}],
}
MEMBERS: Final[dict[str, Any]] = {"group": "billing-ordered", "members": [MEMBER]}
