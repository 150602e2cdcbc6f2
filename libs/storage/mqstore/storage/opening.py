"""The first half of opening a store for writing: whose it is, how it is laid out, how it was left.

Order: the lock before any other file; then ``format.json``; then the state page says
``recovering``, and only then is anything looked at that recovery may change.
"""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from mqstore.storage import inventory, sizes
from mqstore.storage.config import StoreConfig
from mqstore.storage.errors import (
    DataMissing,
    DirectoryNotUsable,
    StoreUnsupported,
)
from mqstore.storage.format_detection import find_format
from mqstore.storage.index.publication import finish_at_opening
from mqstore.storage.layout import StoreFormat
from mqstore.storage.log_lines import bounded_log
from mqstore.storage.loss_check import LossCheck, check_loss
from mqstore.storage.metadata import (
    follower_note,
    format_file,
    index_loss,
    log_owner,
    regular_files,
    store_lock,
    store_settings,
    truncation,
)
from mqstore.storage.metadata.block_files import BlockFiles
from mqstore.storage.metadata.deleted_topics import DeletedTopics
from mqstore.storage.metadata.epochs import Epochs
from mqstore.storage.metadata.format_file import FormatFile, Owner, Settings, Sizes
from mqstore.storage.metadata.log_owner import LogOwner
from mqstore.storage.metadata.manifest import Manifest
from mqstore.storage.metadata.quarantine import Quarantine
from mqstore.storage.metadata.state_page import StatePage, read_state
from mqstore.storage.metadata.state_snapshot import Health, StateSnapshot
from mqstore.storage.metadata.store_lock import StoreLock
from mqstore.storage.metadata.truncation import Truncation
from mqstore.storage.options import StoreOptions
from mqstore.storage.paths import StorePaths
from mqstore.storage.recovery import accepted_loss, last_run
from mqstore.storage.recovery.accepted_loss import AcceptedLoss, begin_segments, last_durable
from mqstore.storage.recovery.loss import missing_ranges
from mqstore.storage.recovery.plan import why_read_only
from mqstore.storage.recovery.view import (
    Segments,
    StoreView,
    find_segments,
    holds_a_store,
)
from mqstore.storage.retention.rule import NO_DELETION
from mqstore.storage.seams import FileSystem, Seams
from mqstore.storage.system.atomic_file import change_together, remove_file
from mqstore.storage.tables import offsets_file
from mqstore.storage.tables.config_tables import TopicTable
from mqstore.storage.tables.consumer_filters import ConsumerFilters
from mqstore.storage.tables.subscription_groups import SubscriptionGroups

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_INDEXES_ALL: Final = {"index_catch_up_size": sys.maxsize}
"""A setting of one process, as above."""

log = bounded_log(__name__)


@dataclass(slots=True)
class OpenedDirectory:
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
    epochs: Epochs
    index_lost: bool
    """Whether files of the index are gone that the last writer had, or missed."""
    index_synced: int
    """Files of the index that end below this physical offset are on disk."""
    queues_noted: int
    """The physical offset up to which running.json said what is in the queues."""
    resumes: bool
    """Whether the opening before was cut off while it recovered."""
    boot_id: str
    """Identifier of the machine's boot."""
    existed: bool
    accepted: AcceptedLoss | None
    """A loss of durable data, accepted by an operator, from which this opening goes on."""
    odd: list[str]
    """Files of ours that could not be read, and what was done."""
    quarantined: list[str]
    """Names of quarantine entries made so far."""


@dataclass(frozen=True, slots=True)
class _Facts:
    """The state files of a locked directory, read before the opening changes them."""

    paths: StorePaths
    """With the place of the log."""
    format: FormatFile | None
    """None where format.json is missing or cannot be read."""
    owner: LogOwner | None
    state: StateSnapshot | None
    """The state page as the last writer left it."""
    look: LossCheck
    trusted: bool
    """Whether no other program has opened the store since our last opening."""
    accepted: AcceptedLoss | None
    cut: Truncation | None
    """A diverged tail, to be cut off by this opening."""


class _Aside:
    """Copies files of ours that cannot be read away before they are made again."""

    def __init__(self, files: FileSystem, quarantine: Quarantine) -> None:
        self.odd: list[str] = []
        self.names: list[str] = []
        self._files = files
        self._quarantine = quarantine

    def set(self, path: Path, why: str) -> None:
        """Copy a file to quarantine, unless it is empty, and report why. OSError."""
        stat = self._files.stat(path)
        if stat is not None and stat.size:
            self.names.append(self._quarantine.keep_file(path, why).name)
        self.odd.append(f"{path.name} was made again: {why}")
        log.warning("%s cannot be read and is made again: %s", path, why)

    def move(self, path: Path, why: str) -> None:
        """Move a file to quarantine, and report why. OSError."""
        self.names.append(self._quarantine.move_file(path, why).name)
        self.odd.append(f"{path.name} was set aside: {why}")
        log.warning("%s was set aside: %s", path, why)

    def note(self, what: str) -> None:
        """Report what is odd about the directory."""
        self.odd.append(what)
        log.error("%s", what)


def open_directory(
    root: Path, config: StoreConfig, seams: Seams, options: StoreOptions
) -> OpenedDirectory:
    """Lock and identify a store; nothing of RocketMQ's files changes but ``lock``.

    Raises StoreLocked, DirectoryNotUsable, DiskRefuses, StoreOfAnother, StoreUnsupported,
    StoreDamaged, DataMissing (before anything has changed).
    """
    _refuse_several(options.store_path_commit_log)
    with _usable(root):
        root = seams.files.real_path(root)
        regular_files.require(seams.files, StorePaths(root), writes=options.in_place)
        paths = log_owner.locate(seams.files, root, options.store_path_commit_log)
    lock = store_lock.take(seams.files, paths, create=options.create)
    try:
        with _usable(root):
            return _identify(paths, config, seams, options, lock)
    except BaseException:
        lock.undo(seams.files, paths)
        raise


@contextmanager
def _usable(root: Path) -> Iterator[None]:
    """Raise DirectoryNotUsable or DiskRefuses for an error of the system."""
    try:
        yield
    except OSError as error:
        raise store_lock.not_usable(
            f"{root} cannot be used as a store ({error}); check its permissions and its disk", error
        ) from error


def _identify(
    paths: StorePaths, config: StoreConfig, seams: Seams, options: StoreOptions, lock: StoreLock
) -> OpenedDirectory:
    files = seams.files
    aside = _Aside(files, Quarantine(files, seams.clock, paths.quarantine, paths.root))
    _take_inventory(files, paths, aside, refuses=options.in_place)
    facts = _read_facts(paths, config, seams, options, lock, aside)
    paths, found, accepted = facts.paths, facts.format, facts.accepted
    existed = found is not None or holds_a_store(files, paths)
    if not existed and not options.create:
        raise DirectoryNotUsable(f"{paths.root} holds no store; name a store directory")
    if follower_note.begins_to_follow(files, paths, options):
        _set_group_states_aside(files, paths, aside)
    follower_note.settle(files, paths, options)
    recorded = store_settings.load_recorded(files, paths, found)
    config = store_settings.apply(config, {} if options.all_settings else recorded, paths)
    store_format = facts.look.view.store_format
    config = offsets_file.settle(files, paths, config, store_format, aside.move)
    settings = store_settings.to_record(config, recorded)
    config = _adopt_sizes(files, facts, config, options)
    _set_unreadable_aside(files, facts, aside)
    if accepted is not None:
        begin_segments(files, paths, config, facts.look.view.store_format, accepted)
    segments = find_segments(files, paths, config.mapped_file_size_commit_log)
    content = _next_format(facts, segments, settings, config, seams, options, lock)
    if existed and (changes := store_settings.describe_changes(recorded, settings)):
        log.info("the store's settings change: %s", changes)
    format_file.refuse_another(content, options.store_id, options.shard)
    blocks = BlockFiles(files, paths.blocks, config.mapped_file_size_commit_log, content.store_id)
    if not facts.trusted and not lock.had_sign:
        remove_file(files, paths.deleted_topics)  # a broker may have cut the log below its offsets
        for table in (TopicTable, SubscriptionGroups, ConsumerFilters):
            table.settle_after_broker(paths, content.rocketmq_format, seams)
    deleted = DeletedTopics.load(files, paths.deleted_topics)
    noted = facts.look.manifests
    view = StoreView.of(files, paths, config, content.rocketmq_format, segments, blocks)
    view = _judge(view, facts, deleted)
    is_whole = facts.trusted and accepted is None and view.loss is None and facts.cut is None
    clean = last_run.clean_close(view, found, deleted, noted.clean) if is_whole else None
    left_files = last_run.left_behind(noted.clean, found) if facts.trusted else None
    index_lost = index_loss.at_opening(files, paths, left_files)
    index_synced = last_run.index_synced(noted.running, found) if facts.trusted else 0
    boot_id = options.boot_id or _read_boot_id(seams)
    state = _write_opening(facts, content, config, blocks, lock, seams, boot_id)
    if deleted.queues_incomplete:
        remove_file(files, paths.running)
        deleted.note_queues_begun()
    if options.bounds_reads:
        state.bound_reads()
    return OpenedDirectory(
        paths=paths,
        config=_of_this_process(config, options),
        format=content,
        lock=lock,
        state=state,
        view=view,
        blocks=blocks,
        clean=clean,
        deleted=deleted,
        epochs=Epochs.load(files, paths, _log_id(files, paths, content)),
        index_lost=index_lost,
        index_synced=index_synced,
        queues_noted=0 if noted.running is None else noted.running.derived_offset,
        resumes=facts.state is not None and facts.state.health is Health.RECOVERING,
        boot_id=boot_id,
        existed=existed,
        accepted=accepted,
        odd=aside.odd,
        quarantined=aside.names,
    )


def _take_inventory(files: FileSystem, paths: StorePaths, aside: _Aside, *, refuses: bool) -> None:
    """Report what mqstore does without; ``refuses``: raise StoreUnsupported for what it cannot
    serve. A store that is only read may have that."""
    found = inventory.survey(files, paths)
    if refuses:
        inventory.refuse(found, paths.root)
    for each in found:
        aside.odd.append(str(each))
        log.warning("%s", each)


def _of_this_process(config: StoreConfig, options: StoreOptions) -> StoreConfig:
    """The settings with those that concern this opening only."""
    update = {} if options.deletes else dict(NO_DELETION)
    return config.model_copy(update=update | (_INDEXES_ALL if options.indexes_all else {}))


def _read_facts(
    paths: StorePaths,
    config: StoreConfig,
    seams: Seams,
    options: StoreOptions,
    lock: StoreLock,
    aside: _Aside,
) -> _Facts:
    """Read what the directory says, hold its log, and finish an index publication that was begun.

    Raises StoreOfAnother, StoreUnsupported, StoreDamaged, and DataMissing for an unaccepted loss.
    """
    files = seams.files
    found = _known_format(files, paths, aside)
    if found is not None:
        format_file.refuse_another(found, options.store_id, options.shard)
        if paths.commit_log_dir is None and found.store_path_commit_log is not None:
            paths = log_owner.locate(files, paths.root, found.store_path_commit_log)
            log_owner.require_marked(files, paths, found)
    regular_files.require(files, paths, writes=options.in_place)
    is_gone = not files.list(paths.commit_log)  # its volume may not be mounted
    owner = None if is_gone else _hold_log(files, paths, found, lock, options)
    trusted = found is not None and lock.modified_before_ms == found.lock_modified_ms
    cut = truncation.begin(files, paths)
    left = read_state(files, paths.state)
    look = check_loss(files, paths, config, found, left, lock.modified_before_ms, options.format)
    is_known = trusted or found is None or look.in_traces
    accepted = _accepted(look, trusted=is_known, raises=options.in_place)
    if is_gone and accepted is not None and found is not None and found.commit_log_is_marked:
        log_owner.save(files, paths, found.store_id, found.epoch)
    if is_gone and (accepted is not None or look.blocking is None):
        owner = _hold_log(files, paths, found, lock, options)
    if look.loss is not None and look.blocking is None:
        aside.note(f"a broker has had the store since: {look.loss.text}")
    found = finish_at_opening(seams, paths, found, trusted=trusted)
    if files.stat(paths.manifest) is None:  # it may have named index files that are now replaced
        look = replace(look, manifests=look.manifests._replace(clean=None))
    return _Facts(paths, found, owner, left, look, trusted, accepted, cut)


def _adopt_sizes(
    files: FileSystem, facts: _Facts, config: StoreConfig, options: StoreOptions
) -> StoreConfig:
    """The settings with the sizes that the files have. Raises StoreUnsupported."""
    known = facts.format.sizes if facts.format is not None else None
    return sizes.adopt(files, facts.paths, config, known, keep_index_sizes=options.in_place)


def _log_id(files: FileSystem, paths: StorePaths, content: FormatFile) -> str | None:
    """The id of a log without epochs: that of the store, unless it was copied from a broker."""
    return content.store_id if follower_note.load(files, paths) is None else None


def _set_group_states_aside(files: FileSystem, paths: StorePaths, aside: _Aside) -> None:
    """A leader does not send them, and those of this store may be of messages that are cut."""
    for path in (paths.shared_groups, paths.ordered_groups, paths.dead_letters):
        if files.stat(path) is not None:
            aside.set(path, "the store led until now, and follows a leader")
            remove_file(files, path)


def _set_unreadable_aside(files: FileSystem, facts: _Facts, aside: _Aside) -> None:
    paths = facts.paths
    if facts.state is None and files.stat(paths.state) is not None:
        aside.set(paths.state, "it is no state page of this version")
    if (note := files.stat(paths.running)) is not None and not note.size:
        aside.set(paths.running, "it is empty")


def _judge(view: StoreView, facts: _Facts, deleted: DeletedTopics) -> StoreView:
    """The view with what our last run left, and with the loss that was found or accepted."""
    view = replace(view, truncation=facts.cut)
    if facts.trusted and facts.state is not None and facts.format is not None:
        view = last_run.add_last_run(
            view, facts.format, facts.state, deleted, facts.look.manifests.running
        )
    if facts.accepted is not None:
        return replace(view, recover_from=last_durable(view.files, view.segments, facts.accepted))
    if facts.look.blocking is not None:
        return replace(view, loss=facts.look.blocking)
    return view


def _write_opening(
    facts: _Facts,
    content: FormatFile,
    config: StoreConfig,
    blocks: BlockFiles,
    lock: StoreLock,
    seams: Seams,
    boot_id: str,
) -> StatePage:
    """Make the opening durable: the state page says ``recovering``, format.json has a new epoch."""
    files, paths, found = seams.files, facts.paths, facts.format
    if content.commit_log_is_marked and facts.owner is None:
        log_owner.save(files, paths, content.store_id, epoch=0)
    state = _begin(paths, content, seams, trusted=facts.trusted, boot_id=boot_id)
    if found is None or not format_file.has_block_checksums(found, lock.modified_before_ms):
        blocks.drop(0)
    _note_opening(files, paths, content, config)
    store_lock.put_sign(files, paths, lock)
    return state


def _accepted(look: LossCheck, *, trusted: bool, raises: bool) -> AcceptedLoss | None:
    """The accepted loss that this opening goes on from.

    With ``raises``, an unaccepted loss raises DataMissing."""
    files, paths = look.view.files, look.view.paths
    accepted = accepted_loss.load(files, paths)
    if accepted is not None and trusted:
        if look.loss is None and accepted_loss.is_begun(files, paths, accepted):
            return accepted
        if look.loss is not None and accepted.covers(look.loss):
            return accepted
    if look.blocking is not None and raises:
        raise DataMissing(why_read_only(look.view, look.blocking), look.blocking)
    if accepted is not None and look.blocking is None:
        log.warning("nothing is missing any more: the accepted loss is forgotten")
        remove_file(files, paths.accepted_loss)
    return None


def _known_format(files: FileSystem, paths: StorePaths, aside: _Aside) -> FormatFile | None:
    """format.json; None where the store's layout has to be found from its files."""
    found, why = format_file.load_or_lose(files, paths)
    if why is not None:
        aside.set(paths.format, why)
    return found


def _refuse_several(setting: str | None) -> None:
    if setting is not None and "," in setting:
        raise StoreUnsupported(
            f"storePathCommitLog names several directories ({setting}); mqstore keeps the log in "
            "one: move the segments together and name that"
        )


def _hold_log(
    files: FileSystem,
    paths: StorePaths,
    found: FormatFile | None,
    lock: StoreLock,
    options: StoreOptions,
) -> LogOwner | None:
    """The log's owner, which is this root; an overlay writes nothing, so it locks nothing."""
    if options.in_place:
        return log_owner.hold(files, paths, found, lock)
    return log_owner.check(files, paths, found)


def _next_format(
    facts: _Facts,
    segments: Segments,
    settings: Settings,
    config: StoreConfig,
    seams: Seams,
    options: StoreOptions,
    lock: StoreLock,
) -> FormatFile:
    """format.json of this opening."""
    found, owner, paths = facts.format, facts.owner, facts.paths
    if found is None:
        found = FormatFile(
            store_id=_store_id(facts.state, owner, options, seams),
            shard=options.shard,
            epoch=0 if owner is None else owner.epoch,
            rocketmq_format=find_format(seams.files, paths, segments, options.format),
            sizes=Sizes.of(config),
        )
    epoch = found.epoch + 1
    hosts = [host for host in found.store_hosts if host != options.store_host]
    begin = min((each.base for each in (*segments.usable, *segments.misfits)), default=0)
    missing = missing_ranges(segments, config.mapped_file_size_commit_log, begin)
    return found.model_copy(
        update={
            "epoch": epoch,
            "block_epoch": epoch,
            "facts_epoch": epoch,
            "running_from": _running_from(found) if facts.accepted is None else epoch,
            "log_begin": begin,
            "missing": tuple(missing),
            "store_path_commit_log": str(paths.commit_log_dir) if paths.commit_log_dir else None,
            "commit_log_is_marked": paths.commit_log_dir is not None or owner is not None,
            "store_hosts": (options.store_host, *hosts),
            "lock_modified_ms": lock.modified_ms,
            "owner": Owner(pid=options.pid, host=os.uname().nodename),
            "settings": settings,
            "deletes": options.deletes,
        }
    )


def _running_from(found: FormatFile) -> int:
    if found.running_from is None or found.facts_epoch != found.epoch:
        return found.epoch
    return found.running_from


def _store_id(
    left: StateSnapshot | None, owner: LogOwner | None, options: StoreOptions, seams: Seams
) -> str:
    """The store id in the log's owner file or the state page where format.json was lost, else the
    configured one, else a new one."""
    if owner is not None:
        return owner.store_id
    if left is not None and int(left.store_id, 16):
        return left.store_id
    if options.store_id is not None:
        return uuid.UUID(options.store_id).hex
    return uuid.UUID(int=seams.random.getrandbits(128), version=4).hex


def _begin(
    paths: StorePaths, content: FormatFile, seams: Seams, *, trusted: bool, boot_id: str
) -> StatePage:
    """Publish that the store is recovering; forget a watermark that proves nothing."""
    files = seams.files
    made = (paths.ours, paths.blocks, paths.quarantine, paths.staging, paths.queue_staging)
    for directory in made:
        files.make_directories(directory)
    _clear_staging(files, paths)
    state = StatePage.create(files, paths.state, content.store_id, boot_id)
    if not trusted:
        state.set_flushed(0)
        state.sync()
    return state


def _note_opening(
    files: FileSystem, paths: StorePaths, content: FormatFile, config: StoreConfig
) -> None:
    """One sync for all: the new epoch alone shows that the clean-close manifest is an older one's,
    and broker.conf is for operators."""
    conf = format_file.broker_conf(content, config, paths).encode()
    replaced = {paths.format: format_file.text_of(content)}
    if files.stat(paths.broker_conf) is None or files.read(paths.broker_conf) != conf:
        replaced[paths.broker_conf] = conf
    change_together(files, replaced, removed=[paths.manifest])
    files.sync_directory(paths.ours)
    if content.commit_log_is_marked:
        log_owner.save(files, paths, content.store_id, content.epoch)


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
