"""The sizes of an existing store's files, found from the files: a wrong one loses messages."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice, pairwise
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from mqstore.storage.config import StoreConfig
from mqstore.storage.errors import StoreDamaged, StoreUnsupported
from mqstore.storage.index import sizes as index_sizes
from mqstore.storage.index.sizes import IndexSizes
from mqstore.storage.layout import (
    BLANK_RECORD_SIZE,
    MAGIC_BLANK,
    QUEUE_ENTRY_SIZE,
)
from mqstore.storage.metadata.format_file import Sizes
from mqstore.storage.paths import StorePaths, segment_name, segment_offset
from mqstore.storage.recovery import accepted_loss
from mqstore.storage.seams import FileSystem
from mqstore.storage.system.open_map import open_map

_QUEUES_LOOKED_AT: Final = 64
_BLANK: Final = struct.Struct(">iI")


def adopt(
    files: FileSystem,
    paths: StorePaths,
    config: StoreConfig,
    known: Sizes | None,
    *,
    keep_index_sizes: bool = True,
) -> StoreConfig:
    """``config`` with the sizes that the store really has.

    ``known`` (format.json) wins, then the files, then ``config``; without ``keep_index_sizes``,
    slot and index counts that ``config`` sets win over all. Raises StoreDamaged for files of a
    length that no store has, StoreUnsupported for a segment whose size cannot be found.
    """
    chosen = (known or _found_sizes(files, paths, config)).model_dump()
    if ext_size := _ext_file_size(files, paths):
        chosen["mapped_file_size_consume_queue_ext"] = ext_size
    if not keep_index_sizes:
        chosen_counts = config.model_fields_set & {"max_hash_slot_num", "max_index_num"}
        chosen |= {name: getattr(config, name) for name in chosen_counts}
    try:
        return StoreConfig.model_validate(config.model_dump() | chosen)
    except ValidationError as error:
        raise StoreDamaged(
            f"the files of {paths.root} have lengths that no store has: {error.errors()[0]['msg']}"
        ) from error


def _found_sizes(files: FileSystem, paths: StorePaths, config: StoreConfig) -> Sizes:
    index = _index_sizes(files, paths, config)
    return Sizes(
        mapped_file_size_commit_log=_segment_size(files, paths, config),
        mapped_file_size_consume_queue=_queue_file_size(files, paths) or config.queue_file_size,
        max_hash_slot_num=index.slots,
        max_index_num=index.index_num,
    )


def _index_sizes(files: FileSystem, paths: StorePaths, config: StoreConfig) -> IndexSizes:
    """The sizes that fit the items of the index files, else those of the settings."""
    found = index_sizes.find(files, list(_index_files(files, paths)))
    return found or IndexSizes(config.max_hash_slot_num, config.max_index_num)


def _index_files(files: FileSystem, paths: StorePaths) -> Iterator[Path]:
    for name in files.list(paths.index):
        stat = files.stat(paths.index / name)
        if stat is not None and not stat.is_directory and name.isdigit():
            yield paths.index / name


def _segment_size(files: FileSystem, paths: StorePaths, config: StoreConfig) -> int:
    run = _lengths(files, paths.commit_log)
    begun = [(base, length) for base, length in run if length]
    if len(begun) == 1 and _is_cut_short(files, paths, *begun[0]):
        return _size_of_cut(run, *begun[0], config)
    return _size_of_run(run) or _accepted_size(files, paths) or config.mapped_file_size_commit_log


def _accepted_size(files: FileSystem, paths: StorePaths) -> int | None:
    """The segment size with which the loss of a whole log was accepted."""
    accepted = accepted_loss.load(files, paths)
    return None if accepted is None else accepted.segment_size


def _is_cut_short(files: FileSystem, paths: StorePaths, base: int, length: int) -> bool:
    """Whether a segment, the only one with bytes, shows that it is not whole.

    Offsets are multiples of the size. At least 8 bytes are left behind the last record: they are
    zeros, or belong to the blank record that fills them.
    """
    if base % length:
        return True
    with open_map(files, paths.commit_log / segment_name(base)) as mapped:
        end = bytes(mapped.view[-2 * BLANK_RECORD_SIZE :])
    blanks = (_BLANK.pack(left, MAGIC_BLANK) for left in range(8, 16))
    is_closed = any(end[-left:].startswith(blank) for left, blank in enumerate(blanks, 8))
    return any(end[-BLANK_RECORD_SIZE:]) and not is_closed


def _size_of_cut(run: list[tuple[int, int]], base: int, length: int, config: StoreConfig) -> int:
    """The segment's size, from the next segment's name, else from the setting, else the next power
    of two, as most sizes are. Raises StoreUnsupported."""
    following = [other - base for other, _ in run if other > base]
    is_set = "mapped_file_size_commit_log" in config.model_fields_set
    configured = [config.mapped_file_size_commit_log] if is_set else []
    for size in (*following[:1], *configured, 1 << (length - 1).bit_length()):
        if size >= length and base % size == 0:
            return size
    raise StoreUnsupported(
        f"the only segment, {segment_name(base)}, was cut short at {length} bytes, and its "
        "size cannot be found: set mappedFileSizeCommitLog to what the store was written with"
    )


def _queue_file_size(files: FileSystem, paths: StorePaths) -> int | None:
    found = _sizes_below(files, paths.consume_queue)
    return _most_common(s for s in found if s % QUEUE_ENTRY_SIZE == 0)


def _ext_file_size(files: FileSystem, paths: StorePaths) -> int | None:
    """Find the size from the files, as a broker may have made them with its own setting."""
    return _most_common(_sizes_below(files, paths.consume_queue_ext))


def ext_file_size(files: FileSystem, directory: Path) -> int | None:
    """Size of the ConsumeQueueExt files of one queue, in bytes; None without a file."""
    return _size_of_run(_lengths(files, directory))


def _sizes_below(files: FileSystem, root: Path) -> Iterator[int]:
    """Yield the file sizes of some queues, in bytes."""
    for directory in islice(_queue_directories(files, root), _QUEUES_LOOKED_AT):
        if size := _size_of_run(_lengths(files, directory)):
            yield size


def _queue_directories(files: FileSystem, root: Path) -> Iterator[Path]:
    for topic in files.list(root):
        for queue in files.list(root / topic):
            yield root / topic / queue


def _lengths(files: FileSystem, directory: Path) -> list[tuple[int, int]]:
    """(offset, length) of every file with a segment's name."""
    found = []
    for name in files.list(directory):
        offset, stat = segment_offset(name), files.stat(directory / name)
        if offset is not None and stat is not None and not stat.is_directory:
            found.append((offset, stat.size))
    return found


def _size_of_run(run: list[tuple[int, int]]) -> int | None:
    """The distance of neighbouring files if a file has that length, else the commonest length."""
    lengths = [length for _, length in run if length]
    distances = {b - a for (a, _), (b, _) in pairwise(run)}
    return _most_common(n for n in lengths if n in distances) or _most_common(lengths)


def _most_common(values: Iterable[int]) -> int | None:
    counted = Counter(values).most_common(1)
    return counted[0][0] if counted else None
