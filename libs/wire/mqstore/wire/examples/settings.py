"""Example replies about settings."""

from __future__ import annotations

from typing import Any, Final

SETTING: Final[dict[str, Any]] = {
    "name": "queryThreads",
    "variable": "MQSTORE_QUERY_THREADS",
    "value": 16,
    "default": 8,
    "source": "environment",
}
SETTINGS: Final[dict[str, Any]] = {"configFile": None, "settings": [SETTING]}
