"""Examples for the API pages."""

from __future__ import annotations

import json
from typing import Any, Final

MESSAGE: Final[dict[str, Any]] = {
    "topic": "orders",
    "queueId": 0,
    "queueOffset": 0,
    "physicalOffset": 0,
    "size": 196,
    "offsetMsgId": "7F00000100002A9F0000000000000000",
    "uniqKey": "0A14181E00002A9F1E0018B4AAC20000",
    "tags": "created",
    "keys": ["order-1"],
    "properties": {
        "source": "docs",
        "KEYS": "order-1",
        "UNIQ_KEY": "0A14181E00002A9F1E0018B4AAC20000",
        "TAGS": "created",
    },
    "flag": 0,
    "sysFlag": 0,
    "sysFlagNames": [],
    "bornTimestamp": 1795273269650,
    "bornHost": "127.0.0.1:51000",
    "storeTimestamp": 1795273269654,
    "storeHost": "127.0.0.1:10911",
    "reconsumeTimes": 0,
    "preparedTransactionOffset": 0,
    "shard": 0,
    "bodySize": 5,
    "body": "hello",
}
EVENT: Final = f"id: AAAAAAAAAMRaM0qL\nevent: message\ndata: {json.dumps(MESSAGE)}\n\n"
MESSAGE_DETAIL: Final[dict[str, Any]] = MESSAGE | {
    "segment": "00000000000000000000",
    "segmentPosition": 0,
    "queueEntry": {
        "physicalOffset": 0,
        "size": 196,
        "tagsCode": 1028554472,
        "namesIt": True,
        "unit": None,
    },
    "checksum": {"bodyCrc": 907060870, "blocks": "verified", "coveredBytes": 196},
}
BY_KEY: Final[dict[str, Any]] = {
    "messages": [MESSAGE],
    "unreadable": [],
    "next": None,
    "complete": True,
    "scanned": {
        "from": 0,
        "to": 9223372036854775807,
        "candidates": 1,
        "minOffset": 0,
        "maxOffset": 196,
    },
    "storeId": "0f5a7d6e2c1b4a3f9e8d7c6b5a493827",
}
IDS: Final[dict[str, Any]] = {
    "ids": ["7F00000100002A9F0000000000000000", "7F00000100002A9F00000000000000FF"]
}
BY_IDS: Final[dict[str, Any]] = {
    "results": [
        {"id": "7F00000100002A9F0000000000000000", "message": MESSAGE},
        {
            "id": "7F00000100002A9F00000000000000FF",
            "problem": {
                "type": "urn:mqstore:problem:message-unknown",
                "title": "No such message",
                "status": 404,
                "detail": "offset 255 is not below the log's end, 196",
            },
        },
    ],
    "remaining": [],
}
QUEUES: Final[dict[str, Any]] = {
    "topic": "orders",
    "queues": [{"queueId": 0, "minOffset": 0, "maxOffset": 1, "shard": 0}],
}
PULL: Final[dict[str, Any]] = {
    "messages": [MESSAGE],
    "unreadable": [],
    "next": 1,
    "minOffset": 0,
    "maxOffset": 1,
    "status": "FOUND",
    "shard": 0,
}
OFFSET: Final[dict[str, Any]] = {
    "topic": "orders",
    "queueId": 0,
    "timestamp": 1795273269000,
    "offset": 0,
    "minOffset": 0,
    "maxOffset": 1,
    "shard": 0,
}
BY_TIME: Final[dict[str, Any]] = {"timestamp": 1795273269000, "topics": ["orders"]}
OFFSETS: Final[dict[str, Any]] = {
    "timestamp": 1795273269000,
    "results": [
        {
            "topic": "orders",
            "queueId": 0,
            "shard": 0,
            "offset": 0,
            "minOffset": 0,
            "maxOffset": 1,
        }
    ],
}
SEGMENTS: Final[dict[str, Any]] = {
    "epoch": 12,
    "shard": 0,
    "segments": [{"name": "00000000000000000000", "offset": 0, "size": 196, "full": False}],
}
STORE: Final[dict[str, Any]] = {
    "writer": "alive",
    "health": "ready",
    "storeId": "0f5a7d6e2c1b4a3f9e8d7c6b5a493827",
    "shard": 0,
    "epoch": 12,
    "minOffset": 0,
    "maxOffset": 196,
    "flushedOffset": 196,
    "endOffset": 196,
    "confirmedOffset": 0,
    "inSync": 0,
    "behindBytes": None,
    "dispatchedOffset": 196,
    "indexComplete": True,
    "shards": [],
}
