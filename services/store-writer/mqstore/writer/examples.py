"""Examples for the API pages; the tests send them."""

from __future__ import annotations

from typing import Any, Final

PRODUCE: Final[dict[str, Any]] = {
    "messages": [
        {
            "body": "hello",
            "tags": "created",
            "keys": ["order-1"],
            "properties": {"source": "docs"},
        }
    ],
    "durability": "sync",
}

PRODUCED: Final[dict[str, Any]] = {
    "messages": [
        {
            "offsetMsgId": "7F00000100002A9F0000000000000000",
            "uniqKey": "0A14181E00002A9F1E0018B4AAC20000",
            "queueId": 0,
            "queueOffset": 0,
            "physicalOffset": 0,
            "size": 196,
            "storeTimestamp": 1795273269654,
            "shard": 0,
        }
    ]
}
