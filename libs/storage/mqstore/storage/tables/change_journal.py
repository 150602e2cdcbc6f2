"""``ChangeJournal``: the changes of a config table that its file does not have yet.

RocketMQ writes a config file whole at each change, which costs as much as the table is large. Here
a change is a line that is appended to a journal of ours in ``mqstore/``; the file is written later
(``JournaledTable.save``), and the lines that it then has are removed. A line has the whole new
entry, so it can be applied any number of times.

Each line is a CRC-32C in eight hexadecimal digits, a space, and a JSON object.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from crc32c import crc32c

from mqstore.storage.layout import StoreFormat
from mqstore.storage.seams import FileSystem
from mqstore.storage.system.atomic_file import remove_file, replace_file
from mqstore.storage.tables import java_json

_WITHOUT_SPACE: Final = {ord("\n"): None, ord("\t"): None}
"""Removes the printer's line ends; inside of a string both are escaped."""
_SEALED: Final = 9
"""Bytes of a line before its JSON text: checksum and space."""


@dataclass(frozen=True, slots=True)
class TableChange:
    """One change of one entry."""

    name: str
    value: dict[str, Any] | None
    """The whole new entry; None removes it."""
    is_new: bool
    """Whether the table had no entry of this name before."""
    version: dict[str, Any] | None
    """The table's dataVersion with this change; None where the file has none."""

    def encode(self) -> bytes:
        """The line of this change."""
        fields = {
            "name": self.name,
            "value": self.value,
            "isNew": self.is_new,
            "version": self.version,
        }
        pretty = java_json.dump(fields, StoreFormat.V5_X)
        text = pretty.translate(_WITHOUT_SPACE).encode()
        return b"%08x %s\n" % (crc32c(text), text)


def decode_lines(data: bytes) -> tuple[list[TableChange], int]:
    """The changes of complete lines, and the number of lines that cannot be read.

    A last line without an end is neither: its append did not finish.
    """
    found = [_decode(line) for line in data.split(b"\n")[:-1]]
    changes = [change for change in found if change is not None]
    return changes, len(found) - len(changes)


def _decode(line: bytes) -> TableChange | None:
    text = line[_SEALED:]
    if line[:_SEALED] != b"%08x " % crc32c(text):
        return None
    try:
        fields = java_json.parse(text.decode())
    except ValueError:
        return None
    name, value, version = (fields.get(key) for key in ("name", "value", "version"))
    if not isinstance(name, str) or not _is_object(value) or not _is_object(version):
        return None
    return TableChange(name, value, fields.get("isNew") is True, version)


def _is_object(value: Any) -> bool:
    return value is None or isinstance(value, dict)


class ChangeJournal:
    """The file. One thread at a time; one process appends, others may follow."""

    def __init__(self, files: FileSystem, path: Path) -> None:
        self.size = 0
        """Bytes of the complete lines that this process has read or appended."""
        self._last = b""
        """The last line of these, by which a follower knows that it is still the same journal."""
        self._files = files
        self._path = path

    def load(self) -> bytes:
        """Read the whole journal; empty without one. Raises OSError."""
        try:
            data = self._files.read(self._path)
        except FileNotFoundError:
            data = b""
        whole = data[: data.rfind(b"\n") + 1]
        self._set_end(len(whole), whole)
        return data

    def read_new(self) -> bytes | None:
        """Read the complete lines that were appended since; None when lines were removed since.

        Raises OSError.
        """
        stat = self._files.stat(self._path)
        size = 0 if stat is None else stat.size
        if size == self.size:
            return b""
        if size < self.size:
            return None
        last = self._last
        start = self.size - len(last)
        try:
            data = self._files.read_range(self._path, start, size - start, keep=True)
        except FileNotFoundError:
            return None
        if not data.startswith(last):
            return None
        whole = data[: data.rfind(b"\n") + 1]
        self._set_end(start + len(whole), whole)
        return whole[len(last) :]

    def append(self, lines: bytes) -> None:
        """Append the lines of changes; durable at return. Raises OSError; part of a line may then
        be there."""
        is_new = not self.size
        if is_new:
            self._files.make_directories(self._path.parent)
        self._files.append(self._path, lines)
        if is_new:
            self._files.sync_directory(self._path.parent)
        self.size += len(lines)

    def drop(self, end: int) -> None:
        """Remove what is before a position, durably, and a torn end. Raises OSError."""
        rest = self._files.read(self._path)[end : self.size] if end < self.size else b""
        self.keep(rest)

    def keep(self, lines: bytes) -> None:
        """Replace the journal by these lines, durably. Raises OSError."""
        if lines:
            replace_file(self._files, self._path, lines)
        elif self._files.stat(self._path) is not None:
            remove_file(self._files, self._path)
        self.size = len(lines)

    def _set_end(self, size: int, read: bytes) -> None:
        self.size = size
        self._last = read[read.rfind(b"\n", 0, -1) + 1 :]
