"""Runs in a pod: which of the services let it through. A policy drops, so it waits a moment, or
PATIENCE_S where it is meant to get through."""

from __future__ import annotations

import json
import os
import socket
from urllib.parse import urlsplit

import httpx

PATIENCE_S = float(os.environ.get("PATIENCE_S", "2"))


def is_open(name: str) -> bool:
    url = urlsplit(os.environ[name])
    # Any pod may resolve the address: the question is whether the policy lets this one connect.
    try:
        socket.create_connection((url.hostname, url.port), timeout=PATIENCE_S).close()
    except OSError:
        return False
    live = httpx.get(f"{os.environ[name]}/healthz/live", timeout=PATIENCE_S)
    return live.status_code == 200


NAMES = ("WRITER_URL", "QUERY_URL", "COORDINATOR_URL")
print(json.dumps({"open": [name for name in NAMES if is_open(name)]}))
