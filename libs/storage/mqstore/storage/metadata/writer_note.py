"""The address of the service that writes the store (``store/mqstore/writer.json``).

Written when the store is open, removed at its close. The note of a killed writer is ignored while
no process holds the store's ``lock``.
"""

from __future__ import annotations

from mqstore.storage.metadata.sealed_json import Value
from mqstore.storage.paths import StorePaths
from mqstore.storage.seams import FileSystem
from mqstore.storage.system.atomic_file import put_in_place, remove_file


class WriterNote(Value):
    """A base URL such as ``http://127.0.0.1:8081``, and the process that serves it."""

    url: str
    pid: int


def put(files: FileSystem, paths: StorePaths, note: WriterNote) -> None:
    """Write the note; a power cut may undo it. Raises OSError."""
    put_in_place(files, paths.writer_note, note.model_dump_json().encode())


def load(files: FileSystem, paths: StorePaths) -> WriterNote | None:
    """Load the note of a living writer; else None. Raises OSError."""
    if files.stat(paths.writer_note) is None or not files.is_locked(paths.lock):
        return None
    try:
        return WriterNote.model_validate_json(files.read(paths.writer_note))
    except ValueError:
        return None


def remove(files: FileSystem, paths: StorePaths) -> None:
    """Remove the note. Raises OSError."""
    remove_file(files, paths.writer_note)
