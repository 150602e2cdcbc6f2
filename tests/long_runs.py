"""How many examples a long test takes: all by night, a fifth where others wait for the result."""

from __future__ import annotations

import os


def nightly_examples(count: int) -> int:
    """``count`` in ``make nightly`` (MQSTORE_EXPLORE), a fifth of it in ``make test-ci``."""
    return count if "MQSTORE_EXPLORE" in os.environ else -(-count // 5)
