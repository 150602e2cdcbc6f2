"""A dump's own memory does not grow with the store; mapped files are the kernel's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mqstore.storage.codec import properties
from mqstore.storage.codec.record import Message
from mqstore.storage.config import StoreConfig
from mqstore.storage.message_store import MessageStore
from mqstore.storage.system.threads import production_seams

BODY = b"x" * 1000
FEW, MANY = 5_000, 60_000
CONFIG = StoreConfig(
    mapped_file_size_commit_log=1 << 24, max_hash_slot_num=10_000, max_index_num=50_000
)


def most_own_memory(root: Path, count: int) -> int:
    """Bytes of anonymous memory while a store of so many messages is dumped, each with a key."""
    with MessageStore.open(root, CONFIG, production_seams()) as store:
        for number in range(count):
            encoded = properties.encode({"KEYS": f"key-{number}"}, trailing_separator=False)
            store.append(Message("T", number % 4, BODY, encoded, store.host, store.host, 0))
    command = [sys.executable, "-m", "mqstore.cli.main", "store", "dump", str(root), "--queries"]
    most = 0
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        for number, _ in enumerate(process.stdout):
            if number % 500 == 0:
                most = max(most, own_memory(process.pid))
    assert process.returncode == 0
    return most


def own_memory(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    line = next((line for line in status.splitlines() if line.startswith("RssAnon")), None)
    return 0 if line is None else int(line.split()[1]) * 1024


@pytest.mark.slow
def test_memory_is_independent_of_the_stores_size(tmp_path: Path) -> None:
    few, many = (most_own_memory(tmp_path / str(count), count) for count in (FEW, MANY))

    assert few > 0
    assert many - few < 24 << 20
