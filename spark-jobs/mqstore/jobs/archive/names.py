"""Names of the archive's directories."""

from __future__ import annotations

import hashlib
import re
from typing import Final
from urllib.parse import quote

_BY_TOPIC: Final = "by_topic="
NAME_LENGTH_MAX: Final = 255
"""Bytes of one name on every file system in use."""


def directory_of(topic: str) -> str:
    """The directory of a topic: its percent-encoded name, whose end is a digest where a file system
    allows no longer one."""
    encoded = quote(topic, safe="")
    if len(_BY_TOPIC) + len(encoded) > NAME_LENGTH_MAX:
        end = f"~{hashlib.blake2b(topic.encode(), digest_size=16).hexdigest()}"
        cut = encoded[: NAME_LENGTH_MAX - len(_BY_TOPIC) - len(end)]
        encoded = re.sub("%.?$", "", cut) + end
    return _BY_TOPIC + encoded
