"""Examples of reports for the API pages; the tests send them."""

from __future__ import annotations

from typing import Any, Final

EXPIRY: Final[dict[str, Any]] = {
    "name": "01a1b9e5-0",
    "madeMs": 1795349144061,
    "atRisk": True,
    "diskFills": False,
    "messages": 30000,
    "minOffset": 0,
    "maxOffset": 19641878,
    "expiring": [
        {
            "reservedHours": 72,
            "isInForce": True,
            "horizonHours": 24,
            "endOffset": 7340032,
            "segments": 7,
            "messages": 11266,
            "bytes": 7337247,
            "lost": 3713,
        }
    ],
    "risks": [
        {
            "reservedHours": 72,
            "isInForce": True,
            "horizonHours": 24,
            "kind": "group",
            "name": "billing",
            "topic": "orders",
            "messages": 3713,
            "bytes": 2431220,
            "oldestMs": 1795090000000,
            "goesMs": 1795399200000,
        }
    ],
    "risksMore": 0,
    "out": "s3://reports/mqstore",
}

BACKUP: Final[dict[str, Any]] = {
    "action": "create",
    "place": "s3://bucket/shop/shard-0",
    "beganMs": 1795346100000,
    "endedMs": 1795346220000,
    "isWhole": True,
    "backup": "20261122T013000.000Z",
    "endOffset": 19641878,
    "copiedBytes": 7337247,
    "error": "",
}
BACKUPS: Final[dict[str, Any]] = {"created": BACKUP, "whole": BACKUP, "verified": None}
