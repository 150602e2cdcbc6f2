"""`python -m tests.unit.storage.large_store STEP ROOT BYTES`: one step over a large store, in a
process that may have 512 MiB of memory beside its mapped files. Prints what it counted."""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path
from typing import Final

from mqstore.storage.codec.hosts import Host
from mqstore.storage.codec.record import Message
from mqstore.storage.config import StoreConfig
from mqstore.storage.message_store import MessageStore
from mqstore.storage.system.threads import production_seams
from tests.unit.storage.puts import put_batch

LIMIT: Final = 512 << 20
TOPIC: Final = "large"
QUEUES: Final = 4
BODY: Final = bytes(range(256)) * 128
BATCH: Final = 32
CONFIG: Final = StoreConfig(mapped_file_size_commit_log=1 << 30, index_catch_up_size=8 << 30)
_HOST: Final = Host.parse("127.0.0.1", 10911)


def append(root: Path, size: int) -> int:
    """Put ``size`` bytes of log, and end as a killed process does."""
    store = MessageStore.open(root, CONFIG, production_seams())
    count = 0
    while store.log.max_offset < size:
        put_batch(store, [_message(count + number) for number in range(BATCH)])
        count += BATCH
    print(count, flush=True)
    os._exit(0)


def recover(root: Path, _: int) -> int:
    """Open: recovery, and queues and index again if they are gone."""
    with MessageStore.open(root, CONFIG, production_seams()) as store:
        store.wait_for_index()
        return sum(_end(store, queue_id) for queue_id in range(QUEUES))


def read(root: Path, _: int) -> int:
    """Every record by its queue, and some by key."""
    count = 0
    with MessageStore.open(root, CONFIG, production_seams()) as store:
        for queue_id in range(QUEUES):
            offset, end = 0, _end(store, queue_id)
            while offset < end:
                pull = store.lookups.records(TOPIC, queue_id, offset, 1_000)
                assert not pull.unreadable
                assert all(record.body == BODY for record in pull.records)
                count += len(pull.records)
                offset = pull.next_offset
        for number in range(0, count, 1_000):
            assert len(store.lookups.by_key(TOPIC, f"K{number}").records) == 1
    return count


def exceed(_: Path, __: int) -> int:
    """Fail if a step reads too much."""
    return len(bytearray(LIMIT))


def _message(number: int) -> Message:
    queue_id = number // BATCH % QUEUES
    return Message(TOPIC, queue_id, BODY, b"KEYS\x01K%d\x02" % number, _HOST, _HOST, 1)


def _end(store: MessageStore, queue_id: int) -> int:
    return store.lookups.queue_range(TOPIC, queue_id).max_offset


STEPS: Final = {step.__name__: step for step in (append, recover, read, exceed)}

if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_DATA, (LIMIT, LIMIT))
    print(STEPS[sys.argv[1]](Path(sys.argv[2]), int(sys.argv[3])))
