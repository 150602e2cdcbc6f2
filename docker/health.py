"""The health command of the services' image: exit code 0 when the service of this container lives.

It sends a request to the default port of each service and takes the first reply. It does not verify
the certificate, whose name is that of the service and not ``localhost``.
"""

from __future__ import annotations

import ssl
import sys
import urllib.error
import urllib.request
from typing import Final

PORTS: Final = (8081, 8082, 8083)
TIMEOUT_S: Final = 3.0


def lives(port: int) -> bool | None:
    """Whether the service on this port lives; None when no service listens there."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    for scheme in ("http", "https"):
        url = f"{scheme}://127.0.0.1:{port}/healthz/live"
        try:
            with urllib.request.urlopen(url, timeout=TIMEOUT_S, context=context):  # noqa: S310  # ours
                return True
        except urllib.error.HTTPError:
            return False
        except OSError:
            continue
    return None


if __name__ == "__main__":
    answers = [lives(port) for port in PORTS]
    sys.exit(not (True in answers and False not in answers))
