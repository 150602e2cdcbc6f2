"""The process that an object was made in. Its threads, event loop and connections do not work in a
fork of that process."""

from __future__ import annotations

import os

from mqstore.client.errors import ClientError


class HomeProcess:
    """The process that an object was made in. Thread-safe."""

    def __init__(self, kind: str) -> None:
        """``kind`` is what errors call the object."""
        self._kind = kind
        self._pid = os.getpid()

    @property
    def is_current(self) -> bool:
        """Whether the caller runs in it, and not in a fork of it."""
        return os.getpid() == self._pid

    def require(self) -> None:
        """Raise ClientError in a fork of it."""
        if not self.is_current:
            raise ClientError(
                f"the {self._kind} was made in process {self._pid}, and this is process "
                f"{os.getpid()}, a fork of it, which has none of its threads and connections; "
                f"make a {self._kind} in each process"
            )
