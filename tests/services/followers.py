"""Waits for the state of a follower."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Final

from mqstore.client import Client, Following, ProblemError

PATIENCE_S: Final = 60.0


def await_following(client: Client, is_so: Callable[[Following], bool]) -> Following:
    """Return the state of a follower once ``is_so`` holds for it, also of one that opens its store
    again meanwhile."""
    deadline = time.monotonic() + PATIENCE_S
    found: Following | None = None
    while True:
        with contextlib.suppress(ProblemError):  # the store is being opened
            found = client.replication().following
            if found is not None and is_so(found):
                return found
        assert time.monotonic() < deadline, found
        time.sleep(0.02)
