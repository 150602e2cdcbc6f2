"""Examples of what mqstore's services send each other."""

from __future__ import annotations

from typing import Any, Final

DAMAGE: Final[dict[str, Any]] = {"waiting": 1}
STATES: Final[dict[str, Any]] = {
    "pending": [{"topic": "orders", "group": "billing", "queueId": 0, "leased": 2, "done": 5}],
    "delayed": {"billing": 1},
}
OFFSETS: Final[dict[str, Any]] = {"offsets": {"orders@billing": {"0": 42, "1": 40}}}
