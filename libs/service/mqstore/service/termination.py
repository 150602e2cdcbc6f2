"""Why a process ended, left where Kubernetes shows it (a pod's termination message)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from mqstore.service import logs

DEFAULT_PATH: Final = Path("/dev/termination-log")
"""Kubernetes' own default: a file that the kubelet made."""
SIZE_MAX: Final = 4096
"""Bytes that Kubernetes shows."""

log = logs.get(__name__)


def write_termination_message(text: str, path: Path | None = None) -> None:
    """Write the reason to ``path``, or to Kubernetes' default where that file is there.

    Never raises: whoever calls is ending for another reason, and says that in the log too.
    """
    if path is None:
        if not os.access(DEFAULT_PATH, os.W_OK):
            return
        path = DEFAULT_PATH
    content = text.encode(errors="replace")[:SIZE_MAX]
    try:
        path.write_bytes(content)
    except OSError as error:
        log.warning("the termination message cannot be written", path=str(path), error=str(error))
