"""The termination message of a pod: Kubernetes shows it as the reason why a container ended."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from mqstore.service import logs

DEFAULT_PATH: Final = Path("/dev/termination-log")
"""Kubernetes' default path, at which the kubelet creates a file."""
SIZE_MAX: Final = 4096
"""Bytes of the message that Kubernetes keeps."""

log = logs.get(__name__)


def write_termination_message(text: str, path: Path | None = None) -> None:
    """Write the reason to ``path``, by default to DEFAULT_PATH if that file exists.

    Logs an OSError instead of raising it: the process ends for another reason.
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
