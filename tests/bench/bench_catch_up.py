"""The first copy of a whole log by a follower with an empty volume, on the same machine.

The leader has the log in its page cache. The time counts from the start of the follower's process
until the leader has it in sync: all bytes are on the follower's disk then. The limit is a copy of
the log's files with a sync of each. There is no peer: a new slave of RocketMQ copies the last
segment only.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from functools import partial
from typing import Final

from mqstore.storage.paths import StorePaths
from tests.bench import servers
from tests.bench.harness import Bench, Figures, Metric, Setting
from tests.bench.memory import MIB
from tests.bench.stores import Filled, filled_store, fresh_directory

SEGMENT: Final = 256 * MIB


def benches(setting: Setting) -> Iterator[Bench]:
    """The row of a log of ``setting.log_mib``."""
    with (
        filled_store(setting.directory, SEGMENT, setting.log_mib * MIB) as filled,
        servers.leader_of(filled.ours, mapped_file_size_commit_log=SEGMENT) as leader,
    ):
        row = f"first copy of a follower, {setting.log_mib} MiB"
        cost = Metric("cost", f"{row}, cost", "µs a message", higher_is_better=False)
        yield Bench(
            [Metric("rate", row, "MiB/s"), cost],
            ours=partial(_copied_by_a_follower, setting, filled, leader),
            disk=partial(_copied_by_the_disk, setting, filled),
            processes={},  # each round has a follower of its own
        )


def _copied_by_a_follower(setting: Setting, filled: Filled, leader: servers.Leader) -> Figures:
    spent, began = leader.server.cpu_s(), time.perf_counter()
    with (
        fresh_directory(setting.directory) as root,
        servers.follower_of(
            leader, root / "follower", mapped_file_size_commit_log=SEGMENT
        ) as follower,
    ):
        seconds = time.perf_counter() - began
        spent = leader.server.cpu_s() - spent + follower.cpu_s()
    return {
        "rate": filled.log_bytes / seconds / MIB,
        "cost": spent / filled.records * 1e6,
    }


def _copied_by_the_disk(setting: Setting, filled: Filled) -> Figures:
    source = StorePaths(filled.ours).commit_log
    buffer, left = bytearray(MIB), filled.log_bytes
    began = time.perf_counter()
    with fresh_directory(setting.directory) as root:
        for path in sorted(source.iterdir()):
            with path.open("rb", buffering=0) as file, (root / path.name).open("wb") as copy:
                while left > 0 and (count := file.readinto(buffer)):
                    copy.write(memoryview(buffer)[:count])
                    left -= count
                copy.flush()
                os.fdatasync(copy.fileno())
        seconds = time.perf_counter() - began
    return {"rate": filled.log_bytes / seconds / MIB}
