"""store-writer on a disk whose syncs fail from the moment that a file appears."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

real_fdatasync = os.fdatasync
broken = Path(os.environ["FAILING_DISK_MARKER"])


def failing_fdatasync(descriptor: int) -> None:
    if broken.exists():
        raise OSError(errno.EIO, "Input/output error")
    real_fdatasync(descriptor)


os.fdatasync = failing_fdatasync  # type: ignore[assignment]  # descriptors are all we use
sys.argv = ["mqstore.writer"]

from mqstore.service.server import main  # noqa: E402 (after the disk is made to fail)
from mqstore.writer.__main__ import build  # noqa: E402

main(build, "store-writer", lambda settings: settings.writer_port)
