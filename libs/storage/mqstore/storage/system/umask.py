"""Permissions of the files and directories that a process makes: its umask.

Called by every process that may write to a store. What is there already, ours or a broker's, keeps
its permissions.
"""

from __future__ import annotations

import os
from typing import Final

PRIVATE: Final = "0077"
"""Directories 0700, files 0600: for their owner alone."""
VARIABLE: Final = "MQSTORE_STORE_UMASK"
"""The setting ``storeUmask``, for commands and jobs, which read no settings of services."""


def restrict_new_files(umask: str | None = None) -> None:
    """Set the process's umask, octal digits; without one, the environment's, or PRIVATE.

    Raises ValueError for what is no umask.
    """
    given = umask or os.environ.get(VARIABLE) or PRIVATE
    os.umask(int(given, 8))
