"""``Table``: one of RocketMQ's ``config/*.json`` files.

Each file has a ``.bak`` with the previous content. As in RocketMQ, a file that cannot be read
(truncated, empty) is replaced by its ``.bak``; the table then reports it. Unknown fields are kept.
Source: ConfigManager of 4.9.7 and 5.4.0.

Every method may be called from any thread.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from threading import Lock, RLock
from typing import Any, ClassVar, Final, Self

from mqstore.storage.errors import ConfigTableError
from mqstore.storage.layout import StoreFormat
from mqstore.storage.paths import StorePaths, how_to_repair
from mqstore.storage.seams import Seams
from mqstore.storage.system.atomic_file import replace_file
from mqstore.storage.tables import java_json, table_text
from mqstore.storage.tables.table_text import JsonObject

DATA_VERSION: Final = "dataVersion"


class Source(StrEnum):
    """The file that a table was loaded from."""

    FILE = "file"
    BACKUP = "backup"
    NEW = "new"


class Table:
    """One file: its content as a tree, and how it is read and written.

    Methods that change the table change memory; ``save`` makes the change durable.
    """

    file_name: ClassVar[str]
    table_name: ClassVar[str]
    """The member of the file's object that holds the entries."""

    def __init__(self, path: Path, store_format: StoreFormat, seams: Seams) -> None:
        self.path = path
        self.source = Source.NEW
        self.problem: str | None = None
        """Why the file itself could not be read, when its ``.bak`` was loaded; else None."""
        self.data: JsonObject = {}
        self._format = store_format
        self._seams = seams
        self._lock = RLock()
        self._saving = Lock()
        self._saved: bytes | None = None
        """Content of the last successful load or save: the next ``.bak``."""

    @classmethod
    def load(cls, paths: StorePaths, store_format: StoreFormat, seams: Seams) -> Self:
        """Load the table; an empty one when there is neither file nor ``.bak``.

        Raises ConfigTableError when neither of the existing files can be read, OSError.
        """
        table = cls.empty(paths, store_format, seams)
        table._load()
        return table

    @classmethod
    def empty(cls, paths: StorePaths, store_format: StoreFormat, seams: Seams) -> Self:
        """The table without entries; no file is read."""
        return cls(paths.config / cls.file_name, store_format, seams)

    @property
    def backup_path(self) -> Path:
        """The path of the ``.bak``."""
        return self.path.with_name(self.path.name + ".bak")

    def text(self) -> str:
        """The text that ``save`` writes."""
        with self._lock:
            return java_json.dump(self._tree_to_save(), self._format)

    def save(self, await_log: Callable[[], object] = lambda: None) -> None:
        """Write the file atomically, after its previous content to ``.bak``.

        Changes made meanwhile do not wait, and belong to the next save. ``await_log`` is called
        once the content is fixed and before it is written: it returns when the part of the log that
        the content refers to is on disk. Raises its errors, and OSError.
        """
        with self._saving:
            self._write(self.text().encode(), await_log)

    def save_with_backup(self) -> None:
        """Write the same content to the file and its ``.bak``, so that the previous content is
        gone."""
        self.save()
        self.save()

    def adopt(self, text: str) -> bool:
        """Replace the content, in memory, by that of another store's file; returns whether the two
        differ. Raises ConfigTableError, and nothing changes then."""
        try:
            data = table_text.parse(self.file_name, text)
        except ValueError as error:
            raise ConfigTableError(f"this is no {self.file_name} ({error})") from error
        if not isinstance(data.get(self.table_name), dict):
            raise ConfigTableError(f"this is no {self.file_name}: it has no {self.table_name}")
        with self._lock:
            if data == self.data:
                return False
            self.data = data
            self._forget_all()
            return True

    def _forget_all(self) -> None:
        """Drop what was made of the content before. The caller holds the lock."""

    @property
    def saved_size(self) -> int:
        """Bytes of the file as it was last loaded or saved."""
        return len(self._saved or b"")

    def touch(self) -> None:
        """Count a change in dataVersion, where the format's file has one."""
        with self._lock:
            version = self.data.get(DATA_VERSION)
            changed = dict(version) if isinstance(version, dict) else {}
            changed["counter"] = integer(changed.get("counter"), 0) + 1
            if self._format is StoreFormat.V5_X:
                changed.setdefault("stateVersion", 0)
            changed["timestamp"] = self._seams.clock.now_ms()
            self.data[DATA_VERSION] = dict(sorted(changed.items()))

    @property
    def entries(self) -> JsonObject:
        """The entries themselves; created when missing."""
        entries = self.data.get(self.table_name)
        if not isinstance(entries, dict):
            entries = self.data[self.table_name] = {}
        return entries

    def _write(self, content: bytes, await_log: Callable[[], object]) -> None:
        await_log()
        self._seams.files.make_directories(self.path.parent)
        if self._saved is not None:
            replace_file(self._seams.files, self.backup_path, self._saved)
        replace_file(self._seams.files, self.path, content)
        self._saved = content
        self.source = Source.FILE

    def _tree_to_save(self) -> JsonObject:
        """The tree to write: members in alphabetical order, as fastjson prints beans."""
        tree = {**self.data, self.table_name: self.entries}
        return dict(sorted(tree.items(), key=lambda member: str(member[0])))

    def _load(self) -> None:
        problems = []
        for path, source in ((self.path, Source.FILE), (self.backup_path, Source.BACKUP)):
            if self._seams.files.stat(path) is None:
                continue
            content = self._seams.files.read(path)
            try:
                self.data = table_text.parse(self.path.name, content.decode())
            except ValueError as error:
                problems.append(f"{path.name} cannot be read ({error})")
                continue
            self._saved, self.source = content, source
            self.problem = "; ".join(problems) or None
            return
        if problems:
            raise ConfigTableError(
                f"{'; '.join(problems)}: restore {self.path} from a copy, or begin it anew: "
                + how_to_repair(self.path.parents[1])
            )


def integer(value: Any, default: int) -> int:
    """Return ``value`` when it is an integer, else ``default``."""
    return value if isinstance(value, int) and not isinstance(value, bool) else default
