"""Examples of traces, for the API pages."""

from __future__ import annotations

from typing import Any, Final

from mqstore.wire.examples.lags import OFFSETS

_COPY: Final[dict[str, Any]] = {
    "kind": "message",
    "state": "stored",
    "why": "",
    "group": None,
    "dueAt": None,
    "topic": "orders",
    "shard": 0,
    "queueId": 0,
    "queueOffset": 0,
    "physicalOffset": 0,
    "size": 196,
    "offsetMsgId": "7F00000100002A9F0000000000000000",
    "originMessageId": None,
    "storeTimestamp": 1795273269654,
    "storeHost": "127.0.0.1:10911",
    "reconsumeTimes": 0,
    "segment": "00000000000000000000",
    "inQueue": True,
    "groups": [{"group": "billing", "committed": 42, "consumed": True}],
}
_SENT_BACK: Final[dict[str, Any]] = _COPY | {
    "kind": "retry",
    "group": "billing",
    "topic": "%RETRY%billing",
    "physicalOffset": 512,
    "size": 260,
    "offsetMsgId": "7F00000100002A9F0000000000000200",
    "originMessageId": "7F00000100002A9F0000000000000000",
    "storeTimestamp": 1795273279700,
    "reconsumeTimes": 1,
    "groups": [{"group": "billing", "committed": 0, "consumed": False}],
}
_TRACE: Final[dict[str, Any]] = {
    "topic": "orders",
    "uniqKey": "0A14181E00002A9F1E0018B4AAC20000",
    "keys": ["order-1"],
    "tags": "created",
    "bornTimestamp": 1795273269650,
    "bornHost": "127.0.0.1:51000",
    "copies": [_COPY, _SENT_BACK],
    "unreadable": [],
    "complete": True,
}
TRACE: Final[dict[str, Any]] = {"trace": _TRACE, "offsets": OFFSETS, "shard": 0}
TRACES: Final[dict[str, Any]] = {
    "traces": [_TRACE],
    "next": None,
    "complete": True,
    "offsets": OFFSETS,
    "shard": 0,
}
