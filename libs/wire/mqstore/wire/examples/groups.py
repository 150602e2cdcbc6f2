"""Examples of topics, groups and offsets for the API pages; the tests send them."""

from __future__ import annotations

from typing import Any, Final

TOPIC_DELETION: Final[dict[str, Any]] = {
    "topic": "orders",
    "queues": 4,
    "messages": 1200,
    "groups": ["billing"],
    "dryRun": True,
}

CHANGED_TOPIC: Final[dict[str, Any]] = {
    "topic": "orders",
    "queues": 3,
    "readQueues": 3,
    "writeQueues": 3,
    "perm": 6,
    "order": False,
    "filterType": "SINGLE_TAG",
    "attributes": {},
    "hiddenQueues": 5,
    "hiddenMessages": 1200,
    "unread": [{"group": "billing", "messages": 40}],
    "dryRun": False,
}

GROUP: Final[dict[str, Any]] = {
    "group": "billing",
    "configured": True,
    "config": {
        "consumeEnable": True,
        "consumeFromMinEnable": True,
        "consumeBroadcastEnable": True,
        "consumeMessageOrderly": False,
        "retryQueues": 1,
        "retryTimesMax": 16,
        "brokerId": 0,
        "whichBrokerWhenConsumeSlowly": 1,
        "notifyConsumerIdsChangedEnable": True,
        "consumeTimeoutMinutes": 15,
        "attributes": {},
    },
    "topics": ["orders"],
}

OFFSETS: Final[dict[str, Any]] = {
    "group": "billing",
    "offsets": [
        {
            "topic": "orders",
            "shard": 0,
            "queueId": 0,
            "committed": 42,
            "minOffset": 0,
            "maxOffset": 50,
            "lag": 8,
        }
    ],
}

COMMIT: Final[dict[str, Any]] = {"offsets": [{"topic": "orders", "queueId": 0, "offset": 0}]}

SUBSCRIPTION: Final[dict[str, Any]] = {
    "group": "billing",
    "topic": "orders",
    "expression": "price > 5 AND region IN ('eu', 'us')",
    "type": "SQL92",
    "version": 1795273269654,
    "bornMs": 1795273269654,
}

RESET: Final[dict[str, Any]] = {"topic": "orders", "to": "earliest", "dryRun": True}

RESET_DONE: Final[dict[str, Any]] = {
    "group": "billing",
    "topic": "orders",
    "dryRun": True,
    "queues": [
        {"shard": 0, "queueId": 0, "before": 42, "after": 0, "minOffset": 0, "maxOffset": 50}
    ],
}
