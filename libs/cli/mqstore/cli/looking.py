"""What the commands that work on a store directory share: lines, and how they end."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any, Final

from mqstore.cli import ending
from mqstore.storage.config import StoreConfig
from mqstore.storage.errors import StorageError
from mqstore.storage.system.open_files import raise_open_files_limit
from mqstore.storage.system.umask import restrict_new_files

_JSON: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))

Line = dict[str, Any]


def end_of(look: Callable[[], int], refuse: Callable[[str], None], *, unread: int) -> int:
    """As ``ending.end_of``, for a process that opens a store's files; StorageError is refused."""

    def run() -> int:
        raise_open_files_limit()
        restrict_new_files()
        return look()

    return ending.end_of(run, refuse, unread=unread, refused=StorageError)


def print_line(line: Line) -> None:
    sys.stdout.buffer.write(_JSON.encode(line).encode("utf-8", "replace") + b"\n")


def print_refusal(why: str) -> None:
    print_line({"t": "refused", "why": why})


def index_sizes(hash_slots: int | None, index_num: int | None) -> StoreConfig:
    """RocketMQ's defaults but for what was given: these sizes cannot be found from the files."""
    given = {"max_hash_slot_num": hash_slots, "max_index_num": index_num}
    return StoreConfig.model_validate({k: v for k, v in given.items() if v is not None})
