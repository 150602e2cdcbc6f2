"""The operating system as the engine uses it: the production seams (files, threads, clock), and the
process's umask and limit of open files.

Used by every process that opens a store. The engine itself imports none of it but by ``Seams``.
"""

from mqstore.storage.seams import FileSystem, Seams, ServiceHandle
from mqstore.storage.system.atomic_file import replace_file
from mqstore.storage.system.open_files import raise_open_files_limit
from mqstore.storage.system.overlay_files import PrivateBase
from mqstore.storage.system.posix_files import PosixFileSystem
from mqstore.storage.system.threads import production_seams
from mqstore.storage.system.umask import restrict_new_files

__all__ = [
    "FileSystem",
    "PosixFileSystem",
    "PrivateBase",
    "Seams",
    "ServiceHandle",
    "production_seams",
    "raise_open_files_limit",
    "replace_file",
    "restrict_new_files",
]
