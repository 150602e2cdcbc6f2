"""The process's umask: permissions of the files and directories that it creates.

Called by every process that may write to a store. Existing files, ours or a broker's, keep their
permissions.
"""

from __future__ import annotations

import os
from typing import Final

from mqstore.storage.service_settings import PRIVATE_UMASK

VARIABLE: Final = "MQSTORE_STORE_UMASK"
"""The setting ``storeUmask``, for commands and jobs, which read no settings of services."""


def restrict_new_files(umask: str | None = None) -> None:
    """Set the process's umask from octal digits; default: the environment's, or PRIVATE_UMASK.

    Raises ValueError for an invalid umask.
    """
    given = umask or os.environ.get(VARIABLE) or PRIVATE_UMASK
    os.umask(int(given, 8))
