"""Examples of receives and acknowledgements for the API pages; the tests send them."""

from __future__ import annotations

from typing import Any, Final

from mqstore.wire.examples.lookups import MESSAGE

RECEIPT: Final = "0.0.0.1c2k9v0q3x.orders"
RECEIVE: Final[dict[str, Any]] = {
    "topics": {"orders": {"tags": "created || paid"}},
    "max": 32,
    "wait": 20,
    "invisibleS": 60,
}
RECEIVED: Final[dict[str, Any]] = {
    "group": "billing",
    "messages": [
        MESSAGE
        | {
            "receipt": RECEIPT,
            "deliveryAttempt": 1,
            "sourceTopic": "orders",
            "leaseExpires": 1795273329654,
        }
    ],
    "unreadable": [],
    "expired": 0,
    "dead": 0,
    "full": False,
}
ACKNOWLEDGEMENT: Final[dict[str, Any]] = {"receipts": [RECEIPT]}
RETURN: Final[dict[str, Any]] = {
    "receipts": [RECEIPT],
    "delayLevel": 3,
    "reason": "the warehouse does not answer",
}
EXTENSION: Final[dict[str, Any]] = {"receipts": [RECEIPT], "invisibleS": 300}
RESULTS: Final[dict[str, Any]] = {
    "group": "billing",
    "results": [{"receipt": RECEIPT, "status": "ok"}],
}
