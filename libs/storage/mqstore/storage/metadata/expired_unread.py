"""``store/mqstore/expired-unread.json``: messages that expired before groups came to them.

The difference of a group's offset and the minimum of its queue shows such messages until the offset
passes them. This file keeps the number of those that were passed, by group and topic. RocketMQ
ignores it. Without the file, or with a damaged one, the counts begin again at 0.
"""

from __future__ import annotations

import logging
from collections import Counter
from pathlib import Path
from threading import Lock

from mqstore.storage.errors import ConfigTableError
from mqstore.storage.metadata import sealed_json
from mqstore.storage.metadata.sealed_json import StrictValue
from mqstore.storage.seams import FileStat, FileSystem

log = logging.getLogger(__name__)


class _Topic(StrictValue):
    group: str
    topic: str
    passed: int


class _Saved(StrictValue):
    topics: tuple[_Topic, ...]


def read(files: FileSystem, path: Path) -> Counter[tuple[str, str]]:
    """The counts by group and topic, none without a file. Raises OSError, ValueError."""
    return _counts(sealed_json.read(files, path, _Saved) or _Saved(topics=()))


def _counts(saved: _Saved) -> Counter[tuple[str, str]]:
    return Counter({(each.group, each.topic): each.passed for each in saved.topics})


def load(files: FileSystem, path: Path) -> Counter[tuple[str, str]]:
    """Load the counts; none from a file that cannot be read."""
    try:
        return read(files, path)
    except (OSError, ValueError) as error:
        log.error("%s cannot be read, its counts begin again at 0: %s", path, error)
        return Counter()


class ExpiredUnread:
    """The counts of one store. Thread-safe. A leader's are copied with its groups' offsets."""

    def __init__(self, files: FileSystem, path: Path) -> None:
        """Load the saved counts."""
        self._files = files
        self._path = path
        self.revision = 0
        """Number of changes of the counts."""
        self._lock = Lock()
        self._passed = load(files, path)
        self._is_saved = True

    def add(self, group: str, topic: str, count: int) -> None:
        """Count messages that a group has passed; in memory until ``save``."""
        if count > 0:
            with self._lock:
                self._passed[group, topic] += count
                self._note_change()

    def forget(self, *, group: str | None = None, topic: str | None = None) -> None:
        """Forget the counts of a group or a topic; in memory until ``save``."""
        with self._lock:
            for each in [each for each in self._passed if group == each[0] or topic == each[1]]:
                del self._passed[each]
                self._note_change()

    def save(self) -> None:
        """Save changed counts. Raises OSError; the next call then retries."""
        with self._lock:
            if self._is_saved:
                return
            sealed_json.write(self._files, self._path, self._saved())
            self._is_saved = True

    def text(self) -> str:
        """Return the content of the file as ``save`` writes it now."""
        with self._lock:
            return sealed_json.encode(self._saved()).decode()

    def adopt(self, text: str) -> None:
        """Replace the counts by those of a leader's ``text``; in memory until ``save``. Raises
        ConfigTableError."""
        try:
            found = _counts(_Saved.model_validate_json(sealed_json.unseal(text.encode())))
        except ValueError as error:
            raise ConfigTableError(f"this is no {self._path.name} ({error})") from error
        with self._lock:
            if found != self._passed:
                self._passed = found
                self._note_change()

    def _note_change(self) -> None:
        self._is_saved = False
        self.revision += 1

    def _saved(self) -> _Saved:
        topics = tuple(
            _Topic(group=group, topic=topic, passed=count)
            for (group, topic), count in sorted(self._passed.items())
        )
        return _Saved(topics=topics)


class FollowedExpired:
    """Reads the file of another process again when it was replaced. Thread-safe."""

    def __init__(self, files: FileSystem, path: Path) -> None:
        self._files = files
        self._path = path
        self._lock = Lock()
        self._seen: FileStat | None = None
        self._known: Counter[tuple[str, str]] = Counter()

    def of(self, group: str, topic: str) -> int:
        """Number of messages of a topic that expired before a group passed them. Raises OSError."""
        with self._lock:
            found = self._files.stat(self._path)
            if found != self._seen:
                self._known = load(self._files, self._path)
                self._seen = found
            return self._known[group, topic]
