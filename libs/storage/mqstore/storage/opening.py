"""The first half of opening a store for writing: whose it is, how it is laid out, how it was left.

Order: the lock before any other file; then ``format.json``; then the state page says
``recovering``, and only then is anything looked at that recovery may change.
"""

from __future__ import annotations

import logging
import os
import uuid
from array import array
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from mqstore.storage import sizes
from mqstore.storage._kernel import check_run
from mqstore.storage.config import StoreConfig
from mqstore.storage.derived.index_publication import finish_at_opening
from mqstore.storage.errors import DirectoryNotUsable, StoreDamaged, StoreUnsupported
from mqstore.storage.layout import MAGIC_V2, StoreFormat
from mqstore.storage.options import StoreOptions
from mqstore.storage.own import format_file, index_loss, manifest, store_lock
from mqstore.storage.own.block_files import BlockFiles
from mqstore.storage.own.deleted_topics import DeletedTopics
from mqstore.storage.own.format_file import FormatFile, Owner, Sizes
from mqstore.storage.own.manifest import Manifest
from mqstore.storage.own.quarantine import Quarantine
from mqstore.storage.own.state_page import Health, StatePage, StateSnapshot, read_state
from mqstore.storage.own.store_lock import StoreLock
from mqstore.storage.paths import StorePaths
from mqstore.storage.recovery.view import (
    Segments,
    StoreView,
    find_segments,
    read_checkpoint,
)
from mqstore.storage.seams import FileSystem, Seams
from mqstore.storage.system.atomic_file import change_together, remove_file

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_MAGIC_END: Final = 7
_V2_MAGIC_END: Final = MAGIC_V2 & 0xFF
"""The last byte of MAGICCODE tells V2 from V1."""
_RUN_RECORDS: Final = 100_000

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Opened:
    """A locked directory that is known to be ours to recover."""

    paths: StorePaths
    config: StoreConfig
    format: FormatFile
    lock: StoreLock
    state: StatePage
    view: StoreView
    blocks: BlockFiles
    clean: Manifest | None
    """The clean close of ours that the files still match."""
    deleted: DeletedTopics
    index_lost: bool
    """Whether files of the index are gone that the last writer had, or missed."""
    resumes: bool
    """Whether the opening before was cut off while it recovered."""
    existed: bool
    odd: list[str]
    """Files of ours that could not be read, and what was done."""
    quarantined: list[str]
    """Names of quarantine entries made so far."""


class _Aside:
    """Files of ours that cannot be read are copied away before they are made again."""

    def __init__(self, files: FileSystem, quarantine: Quarantine) -> None:
        self.odd: list[str] = []
        self.names: list[str] = []
        self._files = files
        self._quarantine = quarantine

    def set(self, path: Path, why: str) -> None:
        stat = self._files.stat(path)
        if stat is not None and stat.size:
            self.names.append(self._quarantine.keep_file(path, why).name)
        self.odd.append(f"{path.name} was made again: {why}")
        log.warning("%s cannot be read and is made again: %s", path, why)


def open_directory(root: Path, config: StoreConfig, seams: Seams, options: StoreOptions) -> Opened:
    """Lock and identify a store; nothing of RocketMQ's files changes but ``lock``.

    Raises StoreLocked, DirectoryNotUsable, DiskRefuses, StoreOfAnother, StoreUnsupported,
    StoreDamaged.
    """
    paths = StorePaths(root, _log_directory(root, options.store_path_commit_log))
    lock = store_lock.take(seams.files, paths, create=options.create)
    try:
        return _identify(paths, config, seams, options, lock)
    except OSError as error:
        lock.release()
        raise store_lock.not_usable(
            f"{root} cannot be used as a store ({error}); check its permissions and its disk", error
        ) from error
    except BaseException:
        lock.release()
        raise


def _identify(
    paths: StorePaths, config: StoreConfig, seams: Seams, options: StoreOptions, lock: StoreLock
) -> Opened:
    files = seams.files
    aside = _Aside(files, Quarantine(files, seams.clock, paths.quarantine, paths.root))
    found = _known_format(files, paths, aside)
    if found is not None:
        format_file.refuse_another(found, options.store_id, options.shard)
        if paths.commit_log_dir is None and found.store_path_commit_log is not None:
            paths = StorePaths(paths.root, Path(found.store_path_commit_log))
    trusted = found is not None and lock.modified_before_ms == found.lock_modified_ms
    found = finish_at_opening(seams, paths, found, trusted=trusted)
    existed = found is not None or holds_a_store(files, paths)
    if not existed and not options.create:
        raise DirectoryNotUsable(f"{paths.root} holds no store; name a store directory")
    known = found.sizes if found is not None else None
    config = sizes.adopt(files, paths, config, known, keep_index_sizes=options.in_place)
    if options.in_place and not options.replaces_index:
        sizes.refuse_other_index_sizes(files, paths, config)
    left = read_state(files, paths.state)
    if left is None and files.stat(paths.state) is not None:
        aside.set(paths.state, "it is no state page of this version")
    if (note := files.stat(paths.running)) is not None and not note.size:
        aside.set(paths.running, "it is empty")
    segments = find_segments(files, paths, config.mapped_file_size_commit_log)
    content = _next_format(found, left, segments, paths, config, seams, options, lock)
    format_file.refuse_another(content, options.store_id, options.shard)
    size = config.mapped_file_size_commit_log
    blocks = BlockFiles(files, paths.blocks, size, content.store_id)
    view = _view(paths, config, content, segments, files, blocks)
    if not trusted:
        remove_file(files, paths.deleted_topics)  # a broker may have cut the log below its offsets
    deleted = DeletedTopics.load(files, paths.deleted_topics)
    if trusted and left is not None and found is not None:
        view = with_what_is_known(view, found, left, deleted)
    clean = clean_close(view, found) if trusted else None
    left_files = left_behind(view, found) if trusted else None
    index_lost = index_loss.at_opening(files, paths, left_files)
    state = _begin(paths, content, seams, trusted=trusted, options=options)
    if found is None or not format_file.has_block_checksums(found, lock.modified_before_ms):
        blocks.drop(0)
    _note_opening(files, paths, content, config)
    return Opened(
        paths,
        config,
        content,
        lock,
        state,
        view,
        blocks,
        clean,
        deleted,
        index_lost,
        left is not None and left.health is Health.RECOVERING,
        existed,
        aside.odd,
        aside.names,
    )


def _known_format(files: FileSystem, paths: StorePaths, aside: _Aside) -> FormatFile | None:
    """format.json; None where the store's layout has to be found from its files."""
    try:
        return format_file.load(files, paths)
    except StoreDamaged as error:
        # It may have named a log elsewhere: without that, everything else would be cut.
        if files.stat(paths.consume_queue) is not None and not files.list(paths.commit_log):
            raise
        aside.set(paths.format, str(error))
        return None


def _log_directory(root: Path, setting: str | None) -> Path | None:
    if setting is None:
        return None
    if "," in setting:
        raise StoreUnsupported(
            f"storePathCommitLog names several directories ({setting}); mqstore keeps the log in "
            "one: move the segments together and name that"
        )
    path = Path(setting)
    return None if path == root / "commitlog" else path


def holds_a_store(files: FileSystem, paths: StorePaths) -> bool:
    return bool(files.list(paths.commit_log)) or any(
        files.stat(path) is not None
        for path in (paths.commit_log, paths.consume_queue, paths.checkpoint)
    )


def _view(
    paths: StorePaths,
    config: StoreConfig,
    content: FormatFile,
    segments: Segments,
    files: FileSystem,
    blocks: BlockFiles,
) -> StoreView:
    return StoreView(
        files=files,
        paths=paths,
        config=config,
        store_format=content.rocketmq_format,
        segments=segments,
        abort=files.stat(paths.abort) is not None,
        checkpoint=read_checkpoint(files, paths.checkpoint),
        blocks=blocks,
    )


def with_what_is_known(
    view: StoreView, found: FormatFile, left: StateSnapshot, deleted: DeletedTopics
) -> StoreView:
    """Add what our own last run left, which holds as nobody else has opened the store since."""
    if left.store_id != found.store_id:
        return view
    running = manifest.load(view.files, view.paths.running)
    view = replace(view, watermark=left.flushed_offset)
    if running is None or not _is_of(running, found):
        return view
    known = {
        queue: count
        for queue, count in running.entries.items()
        if deleted.below(queue[0]) < running.derived_offset  # else it went after the note
    }
    return replace(view, known_queues=known, derived_offset=running.derived_offset)


def clean_close(view: StoreView, found: FormatFile | None) -> Manifest | None:
    clean = left_behind(view, found)
    return clean if clean is not None and manifest.still_matches(clean, view) else None


def left_behind(view: StoreView, found: FormatFile | None) -> Manifest | None:
    """What the last writer said of its files when it closed them, true or not by now."""
    left = manifest.load(view.files, view.paths.manifest)
    return left if left is not None and found is not None and _is_of(left, found) else None


def _is_of(left: Manifest, found: FormatFile) -> bool:
    """Whether the last process that opened the store left it: an older one's may say more than the
    log held when that process had recovered it."""
    same = left.store_id == found.store_id and left.epoch == found.epoch
    return same and left.lock_modified_ms == found.lock_modified_ms


def _next_format(
    found: FormatFile | None,
    left: StateSnapshot | None,
    segments: Segments,
    paths: StorePaths,
    config: StoreConfig,
    seams: Seams,
    options: StoreOptions,
    lock: StoreLock,
) -> FormatFile:
    """format.json of this opening."""
    if found is None:
        found = FormatFile(
            store_id=_store_id(left, options, seams),
            shard=options.shard,
            epoch=0,
            rocketmq_format=find_format(seams.files, paths, segments, options.format),
            sizes=Sizes.of(config),
        )
    hosts = [host for host in found.store_hosts if host != options.store_host]
    return found.model_copy(
        update={
            "epoch": found.epoch + 1,
            "block_epoch": found.epoch + 1,
            "store_path_commit_log": str(paths.commit_log_dir) if paths.commit_log_dir else None,
            "store_hosts": (options.store_host, *hosts),
            "lock_modified_ms": lock.modified_ms,
            "owner": Owner(pid=options.pid, host=os.uname().nodename),
        }
    )


def _store_id(left: StateSnapshot | None, options: StoreOptions, seams: Seams) -> str:
    """That of the state page where format.json was lost, else the wanted one, else a new one."""
    if left is not None and int(left.store_id, 16):
        return left.store_id
    if options.store_id is not None:
        return uuid.UUID(options.store_id).hex
    return uuid.UUID(int=seams.random.getrandbits(128), version=4).hex


def find_format(
    files: FileSystem, paths: StorePaths, segments: Segments, wanted: StoreFormat | None
) -> StoreFormat:
    """5.x where ``abort.bak``, ``rocksdbstore/``, ``compaction/`` or a V2 record is; else 4.9."""
    traces = (paths.abort_backup, paths.root / "rocksdbstore", paths.root / "compaction")
    if any(files.stat(path) is not None for path in traces) or _has_v2_record(files, segments):
        return StoreFormat.V5_X
    if wanted is not None and not segments.usable:
        return wanted
    return StoreFormat.V4_9


def _has_v2_record(files: FileSystem, segments: Segments) -> bool:
    for segment in segments.usable:
        if segment.length == 0:
            continue
        mapped = files.map(segment.path, writable=False)
        try:
            if _finds_v2(mapped.view, segment.base):
                return True
        finally:
            mapped.unmap()
    return False


def _finds_v2(view: memoryview, base: int) -> bool:
    """Looks at records only, so the unused rest of a segment is not read."""
    position, records = 0, _RUN_RECORDS
    while records == _RUN_RECORDS:
        starts = array("q")
        _, position, records, _ = check_run(
            view,
            position,
            len(view),
            base,
            verify_body=False,
            max_records=_RUN_RECORDS,
            starts=starts,
        )
        if any(view[start + _MAGIC_END] == _V2_MAGIC_END for start in starts):
            return True
    return False


def _begin(
    paths: StorePaths, content: FormatFile, seams: Seams, *, trusted: bool, options: StoreOptions
) -> StatePage:
    """Tell readers that the store is recovering; forget a watermark that proves nothing."""
    files = seams.files
    made = (paths.ours, paths.blocks, paths.quarantine, paths.staging, paths.queue_staging)
    for directory in made:
        files.make_directories(directory)
    _clear_staging(files, paths)
    boot_id = options.boot_id or _read_boot_id(seams)
    state = StatePage.create(files, paths.state, content.store_id, boot_id)
    if not trusted:
        state.set_flushed(0)
        state.sync()
    return state


def _note_opening(
    files: FileSystem, paths: StorePaths, content: FormatFile, config: StoreConfig
) -> None:
    """One sync for all: the new epoch alone tells that the clean-close manifest is an older one's,
    and broker.conf is for people."""
    conf = format_file.broker_conf(content, config, paths).encode()
    replaced = {paths.format: format_file.text_of(content)}
    if files.stat(paths.broker_conf) is None or files.read(paths.broker_conf) != conf:
        replaced[paths.broker_conf] = conf
    change_together(files, replaced, removed=[paths.manifest])
    files.sync_directory(paths.ours)


def _clear_staging(files: FileSystem, paths: StorePaths) -> None:
    for directory in {paths.staging, paths.queue_staging}:
        for name in files.list(directory):
            files.unlink(directory / name)


def _read_boot_id(seams: Seams) -> str:
    try:
        return str(uuid.UUID(seams.files.read(_BOOT_ID).decode().strip()))
    except (OSError, ValueError):
        return str(uuid.UUID(int=seams.random.getrandbits(128), version=4))


def write_abort(files: FileSystem, paths: StorePaths, store_format: StoreFormat, pid: int) -> None:
    """``abort``, as each version of RocketMQ makes it: there until a clean close."""
    if store_format is StoreFormat.V5_X:
        files.write(paths.abort, str(pid).encode())
        if files.stat(paths.abort_backup) is None:
            files.write(paths.abort_backup, b"")
    elif files.stat(paths.abort) is None:
        files.write(paths.abort, b"")
    files.sync_directory(paths.root)
