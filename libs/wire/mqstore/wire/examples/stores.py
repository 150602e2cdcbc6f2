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

DELAYS: Final[dict[str, Any]] = {
    "levels": [
        {
            "level": 1,
            "delay": "1s",
            "queueMin": 0,
            "queueMax": 3,
            "deliveredUpTo": 2,
            "pending": 1,
            "nextDueMs": 1795273270654,
            "waiting": None,
        }
    ],
    "timed": {"pending": 2, "nextDueMs": 1795273271000, "waiting": None},
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

PIN: Final[dict[str, Any]] = {
    "name": "backup-1",
    "fromOffset": 1073741824,
    "toOffset": 2147483648,
    "why": "nightly backup",
    "createdMs": 1795273269654,
    "expiresMs": 1795273569654,
}

QUARANTINE: Final[dict[str, Any]] = {
    "bytes": 138,
    "entries": [
        {
            "magic": "mqstore-quarantine",
            "version": 1,
            "name": "commitlog-00000000000000000000-2625071-138-1c291436",
            "source": "commitlog/00000000000000000000",
            "position": 2625071,
            "length": 138,
            "crc32c": 472454198,
            "reason": "a tombstone",
            "keptAtMs": 1795273269654,
        }
    ],
}

PINS: Final[dict[str, Any]] = {"pins": [PIN]}

ARCHIVE: Final[dict[str, Any]] = {
    "archive": {
        "offset": 1073741824,
        "place": "s3://archive/orders",
        "sinceMs": 1795000000000,
        "markedMs": 1795273269654,
    }
}

_VOLUME: Final[dict[str, Any]] = {
    "path": "/data/store/commitlog",
    "totalBytes": 10737418240,
    "usedBytes": 5368709120,
    "freeBytes": 5368709120,
    "usedPercent": 50.0,
}

RETENTION: Final[dict[str, Any]] = {
    "madeMs": 1795273269654,
    "rule": {
        "fileReservedTime": 72,
        "deleteWhen": "04",
        "cleanFileForciblyEnable": True,
        "cleanFileForciblyMinAge": 3600000,
        "diskMaxUsedSpaceRatio": 75,
        "diskSpaceCleanForciblyRatio": 85,
        "diskSpaceWarningLevelRatio": 90,
        "keepForGroups": "billing",
        "keepDiskCeilingRatio": 88,
    },
    "deletes": True,
    "oldestMs": 1794913200000,
    "triggers": ["hour"],
    "nextHourMs": 1795273269654,
    "putsRefused": False,
    "holdsHonoured": True,
    "volumes": [
        {"name": "commitlog", **_VOLUME},
        {"name": "consumequeue", **_VOLUME, "path": "/data/store/consumequeue"},
    ],
    "holds": [
        {
            "kind": "pin",
            "name": "backup-1",
            "fromOffset": 1073741824,
            "toOffset": 2147483648,
            "untilMs": 1795273569654,
        }
    ],
    "segments": [
        {
            "name": "00000000000000000000",
            "offset": 0,
            "size": 1073741824,
            "modifiedMs": 1795000000000,
            "expiresMs": 1795259200000,
            "goes": True,
            "notBeforeMs": 1795273269654,
            "why": "expired",
            "heldBy": [],
        },
        {
            "name": "00000000001073741824",
            "offset": 1073741824,
            "size": 1073741824,
            "modifiedMs": 1795010000000,
            "expiresMs": 1795269200000,
            "goes": False,
            "notBeforeMs": 1795273569654,
            "why": "held",
            "heldBy": ["pin backup-1"],
        },
    ],
    "bytesToGo": 1073741824,
}

SCRUB: Final[dict[str, Any]] = {
    "position": None,
    "beganAtMs": 1795273269654,
    "checkedBytes": 2147483648,
    "lastPassEndedAtMs": 1795273529654,
    "findingCount": 1,
    "findings": [
        {
            "offset": 1073742001,
            "length": 1,
            "foundAtMs": 1795273399654,
            "field": "TOPIC",
            "recordOffset": 1073741824,
            "topic": "orders",
            "queueId": 0,
            "queueOffset": 4711,
        }
    ],
    "repairCount": 1,
    "tombstoneCount": 0,
    "repairs": [
        {
            "offset": 536871000,
            "length": 4,
            "kind": "restore-bytes",
            "topic": None,
            "queueId": None,
            "queueOffset": None,
            "quarantined": "commitlog-00000000000000000000-536871000-4-9a3c51d2",
            "repairedAtMs": 1795273399660,
        }
    ],
}
REPAIR: Final[dict[str, Any]] = {
    "plan": {
        "start": 0,
        "stop": 2147483648,
        "scannedBytes": 2147483648,
        "records": 9999999,
        "damaged": [],
        "damagedCount": 0,
        "damagedBlocks": [],
        "damagedBlockCount": 0,
        "actions": [
            {
                "kind": "restore-bytes",
                "offset": 536871000,
                "length": 4,
                "content": "000000c4",
                "recordOffset": 536870998,
            }
        ],
    },
    "done": True,
    "quarantined": ["commitlog-00000000000000000000-536871000-4-9a3c51d2"],
}
EVENT: Final = 'id: 5f0c2a1e-7\nevent: deleted\ndata: {"kind":"deleted","atMs":1,"expired":1}\n\n'
