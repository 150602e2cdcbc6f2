"""Changes that operators and volumes make to a store's directory between two processes."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Final

from mqstore.storage.metadata.manifest import load
from mqstore.storage.metadata.state_page import read_state
from mqstore.storage.paths import StorePaths, segment_offset
from mqstore.storage.recovery.view import QueueFiles
from tests.simulation.disk import SimulatedDisk
from tests.simulation.inode import Loss
from tests.simulation.model import Model, QueueKey
from tests.simulation.world import ROOT, World

PATHS: Final = StorePaths(ROOT)
Change = Callable[[SimulatedDisk, SimulatedDisk, random.Random], None]
"""A change of a disk at rest, given a disk of an earlier moment of the same store."""


def segments(disk: SimulatedDisk) -> list[Path]:
    return [PATHS.commit_log / name for name in disk.list(PATHS.commit_log)]


def _unlink(disk: SimulatedDisk, path: Path) -> None:
    disk.unlink(path)
    disk.sync_directory(path.parent)


def lose_last(disk: SimulatedDisk, earlier: SimulatedDisk, rng: random.Random) -> None:
    """One or two at the end."""
    for path in segments(disk)[-rng.randint(1, 2) :]:
        _unlink(disk, path)


def lose_middle(disk: SimulatedDisk, earlier: SimulatedDisk, rng: random.Random) -> None:
    inner = segments(disk)[1:-1]
    if inner:
        _unlink(disk, rng.choice(inner))


def lose_first(disk: SimulatedDisk, earlier: SimulatedDisk, rng: random.Random) -> None:
    _unlink(disk, segments(disk)[0])


def lose_log(disk: SimulatedDisk, earlier: SimulatedDisk, rng: random.Random) -> None:
    """The log's volume is not mounted."""
    for path in segments(disk):
        _unlink(disk, path)


def older_log(disk: SimulatedDisk, earlier: SimulatedDisk, rng: random.Random) -> None:
    """The log's volume comes back from a snapshot."""
    lose_log(disk, earlier, rng)
    for path in segments(earlier):
        _copy(earlier, disk, path)


def older_root(disk: SimulatedDisk, earlier: SimulatedDisk, rng: random.Random) -> None:
    """All but the log comes back from a snapshot."""
    for path in disk.paths():
        if path.is_relative_to(ROOT) and not path.is_relative_to(PATHS.commit_log):
            _unlink(disk, path)
    for path in earlier.paths():
        if path.is_relative_to(ROOT) and not path.is_relative_to(PATHS.commit_log):
            _copy(earlier, disk, path)


def nothing(disk: SimulatedDisk, earlier: SimulatedDisk, rng: random.Random) -> None:
    """A crash alone."""


CHANGES: Final[dict[str, Change]] = {
    "last segments": lose_last,
    "middle segment": lose_middle,
    "first segment": lose_first,
    "no log": lose_log,
    "older log": older_log,
    "older root": older_root,
    "nothing": nothing,
}


def _copy(source: SimulatedDisk, target: SimulatedDisk, path: Path) -> None:
    stat = source.stat(path)
    if stat is None or stat.is_directory:
        return
    target.make_directories(path.parent)
    target.write(path, source.read(path))
    target.set_modified(path, stat.modified_ms)
    target.sync_directory(path.parent)


def durable_end(disk: SimulatedDisk) -> int:
    """The durable end of the log by the files in the metadata directory.

    A power cut in an opening may take the state page back; if no segment is there at all, what the
    last run derived its queues from is durable.
    """
    state, clean = read_state(disk, PATHS.state), load(disk, PATHS.manifest)
    ends = [0 if state is None else state.flushed_offset]
    running = load(disk, PATHS.running)
    if running is not None and not segments(disk):
        ends.append(running.derived_offset)
    ends += [clean.log.max_offset] if clean is not None and clean.log is not None else []
    return max(ends)


def lacks(disk: SimulatedDisk, model: Model, begin: int, end: int) -> bool:
    """Whether bytes from ``begin`` to before ``end`` are not those that were stored."""
    there: dict[int, bytes] = {}
    for path in segments(disk):
        base = segment_offset(path.name)
        assert base is not None
        there[base] = disk.read(path)
    for record in model.live(begin, end):
        if record.rotten:
            continue
        base = max((base for base in there if base <= record.offset), default=None)
        stored = b"" if base is None else there[base][record.offset - base : record.end - base]
        if stored != model.image[record.offset : record.end]:
            return True
    return False


def next_offsets(disk: SimulatedDisk, world: World, end: int) -> dict[QueueKey, int]:
    """By queue, the offset after the last record below a physical offset whose queue entry or note
    is on the disk."""
    files = world.config.queue_file_size
    notes = [load(disk, path) for path in (PATHS.manifest, PATHS.running)]
    found: dict[QueueKey, int] = {}
    for key, model in world.model.queues.items():
        queue = QueueFiles(disk, PATHS.consume_queue / key[0] / str(key[1]), files)
        ends = [queue.end, *(note.entries.get(key, 0) for note in notes if note is not None)]
        queue.close()
        offsets = (record.queue_offset for record in model.below(end) if not record.rotten)
        found[key] = max((offset + 1 for offset in offsets if offset < max(ends)), default=0)
    return found


def lived(seed: int, steps: int) -> tuple[World, SimulatedDisk]:
    """A world whose process has just ended in some way, and its disk at an earlier moment."""
    world = World(seed)
    world.live(steps // 2)
    earlier = world.disk.kill()
    world.live(steps // 2)
    match world.rng.randrange(3):
        case 0:
            world.kill()
        case 1:
            world._try(world.close)
        case _:
            world.lose_power(world.rng.choice(list(Loss)))
    if world.driver is not None:
        world.kill()
    return world, earlier
