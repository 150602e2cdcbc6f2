"""Examples of replication for the API pages."""

from __future__ import annotations

from typing import Any, Final

FOLLOWER: Final[dict[str, Any]] = {
    "role": "follower",
    "epoch": 3,
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
    "leading": None,
    "election": None,
}
LEADER: Final[dict[str, Any]] = {
    "role": "leader",
    "epoch": 4,
    "following": None,
    "leading": {
        "endOffset": 1073745920,
        "confirmedOffset": 1073744896,
        "inSync": ["shop-0", "shop-1"],
        "minInSyncReplicas": 2,
        "replicas": [
            {
                "name": "shop-1",
                "address": "10.1.2.4:51422",
                "kind": "replica",
                "acknowledgedOffset": 1073744896,
                "lagBytes": 1024,
                "lagMs": 3,
                "bytesPerSecond": 5242880,
                "inSync": True,
                "connectedSinceMs": 1795273270654,
                "inSyncSinceMs": 1795273271104,
            }
        ],
    },
    "election": None,
}
PROMOTED: Final[dict[str, Any]] = {
    "role": "leader",
    "epoch": 4,
    "following": None,
    "leading": None,
    "election": None,
}
SWITCHOVER: Final[dict[str, Any]] = {"successor": "shop-mqstore-shard-0-1/9f1c22d0"}
