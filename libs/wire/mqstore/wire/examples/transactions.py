"""Examples of transactions and checks for the API pages; the tests send them."""

from __future__ import annotations

from typing import Any, Final

ID: Final = "0-AC1100021F9018B4AAC2A1B2C3D40000"
SPEC: Final[dict[str, Any]] = {
    "producerGroup": "billing",
    "topic": "orders",
    "messages": [{"body": "order 1 was paid", "keys": ["order-1"]}],
}
BEGUN: Final[dict[str, Any]] = {"transactionId": ID, "state": "pending"}
CALLBACK: Final[dict[str, Any]] = {
    "url": "https://billing.example.org/checks",
    "secret": "the output of openssl rand -hex 32",
}
TARGET: Final[dict[str, Any]] = CALLBACK | {"address": "203.0.113.7", "host": "billing.example.org"}
LEASE: Final[dict[str, Any]] = {"registered": True, "max": 16}
REPORT: Final[dict[str, Any]] = {
    "checks": [{"transactionId": ID, "by": "billing-1", "answer": "unknown"}]
}
