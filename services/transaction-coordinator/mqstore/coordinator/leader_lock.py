"""Which of a machine's coordinators leads: whoever holds a file's lock."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from mqstore.coordinator.leadership import GIVEN_UP_S, NotLeading

URL_SIZE_MAX: Final = 1_000


class LeaderLock:
    """A ``leadership.Leadership`` by an exclusive lock on a file, released with the process. The
    file has the leader's address."""

    def __init__(self, path: Path, url: str) -> None:
        self._path = path
        self._url = url
        self._lock = threading.Lock()
        self._descriptor: int | None = None
        self._given_up = ""
        self._stands_at = 0.0
        """Before, the lock is left to others."""

    def start(self) -> None:
        with suppress(NotLeading):
            self.term()

    def stop(self) -> None:
        with self._lock:
            self._let_go()

    def give_up(self, why: str) -> None:
        with self._lock:
            self._let_go()
            self._given_up = why
            self._stands_at = time.monotonic() + GIVEN_UP_S

    def term(self) -> int:
        """Take the lock, if it is free."""
        with self._lock:
            if self._descriptor is None:
                if time.monotonic() < self._stands_at:
                    raise NotLeading(f"the lead was given up: {self._given_up}")
                self._descriptor = self._taken()
            return 1

    def next_epoch(self, present: int) -> int:
        self.term()
        return present + 1

    def leader_url(self) -> str | None:
        try:
            with self._path.open(encoding="utf-8") as file:
                return file.read(URL_SIZE_MAX).strip() or None
        except (OSError, UnicodeDecodeError):
            return None

    def _let_go(self) -> None:
        if self._descriptor is not None:
            os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)
            self._descriptor = None

    def _taken(self) -> int:
        """Its descriptor. Raises NotLeading."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise NotLeading(f"{self._path} cannot be opened ({error}); set leaderLock") from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, self._url.encode(), 0)
        except OSError:
            os.close(descriptor)
            raise NotLeading(f"another coordinator leads (it holds {self._path})") from None
        return descriptor
