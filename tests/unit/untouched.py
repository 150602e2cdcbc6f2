"""The state of a directory, all of which read-only commands must leave unchanged; and stores in the
states that such commands meet."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from tests.unit.storage.stores import CONFIG, abandon, open_store, put_some

MESSAGES: Final = 300
_CONFIG: Final = CONFIG.model_copy(
    update={"file_reserved_time": 700, "message_delay_level": "1h 2h"}
)


class Entry(NamedTuple):
    """One name below a directory; times in nanoseconds."""

    mode: int
    inode: int
    size: int
    modified_ns: int
    changed_ns: int
    content: str


def entries_of(root: Path) -> dict[str, Entry]:
    """The directory itself and all that is below it, links not followed."""
    return {str(path.relative_to(root)): _entry(path) for path in (root, *root.rglob("*"))}


def _entry(path: Path) -> Entry:
    found = path.lstat()
    content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
    times = found.st_mtime_ns, found.st_ctime_ns
    return Entry(found.st_mode, found.st_ino, found.st_size, *times, content)


def _closed(root: Path) -> None:
    with open_store(root, _CONFIG) as store:
        put_some(store, MESSAGES)
        store.wait_for_index()


def _killed(root: Path) -> None:
    _closed(root)
    store = open_store(root)
    put_some(store, 50, start=MESSAGES)
    abandon(store)


def _without_queues(root: Path) -> None:
    _closed(root)
    shutil.rmtree(root / "consumequeue")


def _without_lock(root: Path) -> None:
    _closed(root)
    (root / "lock").unlink()


def _of_a_broker(root: Path) -> None:
    _closed(root)
    shutil.rmtree(root / "mqstore")
    (root / "lock").write_bytes(b"")  # a broker of 4.9 leaves it empty on some systems


def _of_a_broker_without_lock(root: Path) -> None:
    _of_a_broker(root)
    (root / "lock").unlink()
    (root / "abort").touch()


STORES: Final[dict[str, Callable[[Path], None]]] = {
    "closed": _closed,
    "killed": _killed,
    "without queues": _without_queues,
    "without lock": _without_lock,
    "a broker's": _of_a_broker,
    "a broker's, killed, without lock": _of_a_broker_without_lock,
}


def make_read_only(root: Path) -> None:
    """For every user, of every file and directory."""
    for path in (root, *root.rglob("*")):
        path.chmod(path.stat().st_mode & ~0o222)
