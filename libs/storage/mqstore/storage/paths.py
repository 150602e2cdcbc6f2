"""Paths of all files of a store directory; the only module with their names."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from mqstore.storage import own_files
from mqstore.storage.layout import SEGMENT_NAME_DIGITS


def segment_name(offset: int) -> str:
    """The name of the file whose first byte has the given offset: 20 decimal digits."""
    return f"{offset:0{SEGMENT_NAME_DIGITS}d}"


def segment_offset(name: str) -> int | None:
    """The offset a segment's name stands for, or None when it is no segment's name."""
    if len(name) == SEGMENT_NAME_DIGITS and name.isascii() and name.isdigit():
        return int(name)
    return None


@dataclass(frozen=True)
class StorePaths:
    """Paths of one store. ``commit_log_dir`` is set when storePathCommitLog is another place."""

    root: Path
    commit_log_dir: Path | None = None

    # RocketMQ's own
    @cached_property
    def commit_log(self) -> Path:
        """Segments of the commit log."""
        return self.commit_log_dir or self.root / "commitlog"

    @cached_property
    def consume_queue(self) -> Path:
        """Queue files, by topic and queue id."""
        return self.root / "consumequeue"

    @cached_property
    def consume_queue_ext(self) -> Path:
        """Files of ConsumeQueueExt units, by topic and queue id."""
        return self.root / "consumequeue_ext"

    @cached_property
    def index(self) -> Path:
        """Index files."""
        return self.root / "index"

    @cached_property
    def config(self) -> Path:
        """RocketMQ's tables in JSON."""
        return self.root / "config"

    @cached_property
    def checkpoint(self) -> Path:
        """StoreCheckpoint: times up to which log, queues and index are on disk."""
        return self.root / "checkpoint"

    @cached_property
    def abort(self) -> Path:
        """RocketMQ's mark of a running store: exists from an opening to a clean close."""
        return self.root / "abort"

    @cached_property
    def abort_backup(self) -> Path:
        """Left beside ``abort`` by 5.x."""
        return self.root / "abort.bak"

    @cached_property
    def timer_wheel(self) -> Path:
        """The slots in which messages with a time of delivery wait."""
        return self.root / "timerwheel"

    @cached_property
    def timer_log(self) -> Path:
        """Units of those messages, by slot."""
        return self.root / "timerlog"

    @cached_property
    def timer_check(self) -> Path:
        """How far such messages are delivered."""
        return self.config / "timercheck"

    @cached_property
    def lock(self) -> Path:
        """RocketMQ's lock file."""
        return self.root / "lock"

    # ours
    @cached_property
    def log_identity(self) -> Path:
        """The metadata directory of the commit log's directory: beside it, as a broker refuses to
        start with any other file inside."""
        return self.commit_log.parent / (self.commit_log.name + ".mqstore")

    @cached_property
    def log_owner(self) -> Path:
        """The file that names the store and the root that own the commit log's directory."""
        return self.log_identity / "owner.json"

    @cached_property
    def log_lock(self) -> Path:
        """Held by the writer of a commit log that lies apart from its root."""
        return self.log_identity / "lock"

    @cached_property
    def own_lock(self) -> Path:
        """Held together with ``lock``: where that was deleted, no second writer of ours starts."""
        return self.ours / own_files.LOCK.name

    @cached_property
    def ours(self) -> Path:
        """The metadata directory: files that RocketMQ does not read."""
        return self.root / "mqstore"

    @cached_property
    def state(self) -> Path:
        """The state page, which readers map."""
        return self.ours / own_files.STATE.name

    @cached_property
    def format(self) -> Path:
        """Format, sizes, ids and settings of the store."""
        return self.ours / own_files.FORMAT.name

    @cached_property
    def manifest(self) -> Path:
        """Written at a clean close, removed at open."""
        return self.ours / own_files.CLEAN_CLOSE.name

    @cached_property
    def running(self) -> Path:
        """How far the queues are complete and durable, written from time to time."""
        return self.ours / own_files.RUNNING.name

    @cached_property
    def scrub(self) -> Path:
        """How far the scrub is, and what it has found."""
        return self.ours / own_files.SCRUB.name

    @cached_property
    def blocks(self) -> Path:
        """Checksums of the log by block, one file per segment."""
        return self.ours / own_files.BLOCKS.name

    @cached_property
    def pins(self) -> Path:
        """Leases on ranges of the log."""
        return self.ours / own_files.PINS.name

    @cached_property
    def clock(self) -> Path:
        """Steps of the wall clock."""
        return self.ours / own_files.CLOCK.name

    @cached_property
    def archive(self) -> Path:
        """Up to where the log is archived."""
        return self.ours / own_files.ARCHIVE.name

    @cached_property
    def expiry_report(self) -> Path:
        """Summary of the last expiry report."""
        return self.ours / own_files.EXPIRY_REPORT.name

    @cached_property
    def backup_report(self) -> Path:
        """Last results of backups."""
        return self.ours / own_files.BACKUP_REPORT.name

    @cached_property
    def write_pause(self) -> Path:
        """Mark of paused writes: exists from a pause by an administrator to its end."""
        return self.ours / own_files.WRITE_PAUSE.name

    @cached_property
    def key_owners(self) -> Path:
        """The shards that own unique keys and ordering keys."""
        return self.ours / own_files.KEY_OWNERS.name

    @cached_property
    def follower_note(self) -> Path:
        """Note that the log was copied from a leader."""
        return self.ours / own_files.FOLLOWER.name

    @cached_property
    def epochs(self) -> Path:
        """The epochs of the log: who led it from which offset on."""
        return self.ours / own_files.EPOCHS.name

    @cached_property
    def truncation(self) -> Path:
        """The decision to cut a diverged tail: exists until the cut is on disk."""
        return self.ours / own_files.TRUNCATION.name

    @cached_property
    def shared_groups(self) -> Path:
        """The acknowledgements of shared groups above their offsets."""
        return self.ours / own_files.SHARED_GROUPS.name

    @cached_property
    def ordered_groups(self) -> Path:
        """The members of ordered groups, and the epochs of their queues."""
        return self.ours / own_files.ORDERED_GROUPS.name

    @cached_property
    def expired_unread(self) -> Path:
        """Numbers of messages that expired before groups came to them."""
        return self.ours / own_files.EXPIRED_UNREAD.name

    @cached_property
    def dead_letters(self) -> Path:
        """The dead letters that were resent or purged."""
        return self.ours / own_files.DEAD_LETTERS.name

    @cached_property
    def deleted_topics(self) -> Path:
        """Topics that were deleted while the log still holds their messages."""
        return self.ours / own_files.DELETED_TOPICS.name

    def journal_of(self, table: str) -> Path:
        """The changes that a file of ``config`` does not have yet."""
        return self.ours / f"{table.removesuffix('.json')}.journal"

    @cached_property
    def accepted_loss(self) -> Path:
        """The loss of durable data that an operator has accepted, until the next opening."""
        return self.ours / own_files.ACCEPTED_LOSS.name

    @cached_property
    def import_note(self) -> Path:
        """The import that was begun and has not ended."""
        return self.ours / own_files.IMPORT.name

    @cached_property
    def losses(self) -> Path:
        """Every loss that was accepted."""
        return self.ours / own_files.LOSSES.name

    @cached_property
    def index_staging(self) -> Path:
        """Index files that a rebuild makes."""
        return self.ours / own_files.INDEX_REBUILD.name

    @cached_property
    def index_journal(self) -> Path:
        """Journal of an index publication: exists while new index files replace the old ones."""
        return self.ours / own_files.INDEX_JOURNAL.name

    @cached_property
    def index_lost(self) -> Path:
        """Mark of an incomplete index: exists until lost index files are rebuilt."""
        return self.ours / own_files.INDEX_LOST.name

    @cached_property
    def writer_note(self) -> Path:
        """Address of store-writer on this machine."""
        return self.ours / own_files.WRITER.name

    @cached_property
    def quarantine(self) -> Path:
        """Damaged files and bytes that were replaced."""
        return self.ours / own_files.QUARANTINE.name

    @cached_property
    def recovery_report(self) -> Path:
        """The report of the last opening's recovery."""
        return self.ours / own_files.RECOVERY.name

    @cached_property
    def broker_conf(self) -> Path:
        """A broker.conf that boots this very store."""
        return self.ours / own_files.BROKER_CONF.name

    @cached_property
    def staging(self) -> Path:
        """Files are made here and renamed into place; always on the commit log's file system."""
        if self.commit_log_dir is None:
            return self.ours / own_files.STAGING.name
        return self.commit_log_dir.parent / (self.commit_log_dir.name + ".mqstore-staging")

    @cached_property
    def queue_staging(self) -> Path:
        """As ``staging``, for files of the store's root."""
        return self.ours / own_files.STAGING.name


def how_to_repair(root: Path) -> str:
    """Return the advice of an error that `mqstore store repair` mends."""
    return (
        f"`mqstore store repair {root}` shows what it would change, and changes it with --yes; it"
        " keeps the originals in the quarantine"
    )
