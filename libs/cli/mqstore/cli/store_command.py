"""Output lines, limits and exit codes that the commands on a store directory share."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any, Final

from mqstore.cli import exit_codes
from mqstore.storage import StoreConfig
from mqstore.storage.errors import StorageError
from mqstore.storage.host import raise_open_files_limit, restrict_new_files

_JSON: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))

Line = dict[str, Any]


def run_command(command: Callable[[], int], refuse: Callable[[str], None], *, unread: int) -> int:
    """Run a command that opens the files of a store and return its exit code.

    As ``exit_codes.run_command``; StorageError is a refusal too. Raises the limit of open files
    and restricts the permissions of new files for the whole process.
    """

    def run() -> int:
        """Run the command with the limits of a process that opens a store."""
        raise_open_files_limit()
        restrict_new_files()
        return command()

    return exit_codes.run_command(run, refuse, unread=unread, refused=StorageError)


def print_line(line: Line) -> None:
    """Print one line of JSON in UTF-8; characters that UTF-8 cannot encode are replaced."""
    sys.stdout.buffer.write(_JSON.encode(line).encode("utf-8", "replace") + b"\n")


def print_refusal(why: str) -> None:
    """Print the reason for a refusal as a line of JSON."""
    print_line({"t": "refused", "why": why})


def index_sizes(hash_slots: int | None, index_num: int | None) -> StoreConfig:
    """RocketMQ's defaults with the given sizes of index files, which the files do not record.

    Raises ValueError for a size out of range.
    """
    given = {"max_hash_slot_num": hash_slots, "max_index_num": index_num}
    return StoreConfig.model_validate({k: v for k, v in given.items() if v is not None})
