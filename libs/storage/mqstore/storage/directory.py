"""The store directory as files: names, format.json, the lock, the writer's note, and queue files,
read while another process may have the store open.

Used by query, by store-writer and by Spark jobs.
"""

from mqstore.storage.metadata.format_file import load as load_format
from mqstore.storage.metadata.sealed_json import read as read_sealed
from mqstore.storage.metadata.sealed_json import write as write_sealed
from mqstore.storage.metadata.store_lock import has_sign as has_sign_of_ours
from mqstore.storage.metadata.store_lock import in_use as lock_refusal
from mqstore.storage.metadata.store_lock import take as take_lock
from mqstore.storage.metadata.writer_note import WriterNote
from mqstore.storage.metadata.writer_note import load as load_writer_note
from mqstore.storage.metadata.writer_note import put as put_writer_note
from mqstore.storage.metadata.writer_note import remove as remove_writer_note
from mqstore.storage.own_files import OWN_FILES
from mqstore.storage.paths import StorePaths
from mqstore.storage.queues.next_named import NextNamed
from mqstore.storage.recovery.log_scan import queue_place
from mqstore.storage.recovery.tombstones import QueuePlace
from mqstore.storage.recovery.view import NamedRecord, QueueFiles

__all__ = [
    "OWN_FILES",
    "NamedRecord",
    "NextNamed",
    "QueueFiles",
    "QueuePlace",
    "StorePaths",
    "WriterNote",
    "has_sign_of_ours",
    "load_format",
    "load_writer_note",
    "lock_refusal",
    "put_writer_note",
    "queue_place",
    "read_sealed",
    "remove_writer_note",
    "take_lock",
    "write_sealed",
]
