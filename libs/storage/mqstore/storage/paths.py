"""Where everything lives in a store directory; the only module that knows file names."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mqstore.storage.layout import SEGMENT_NAME_DIGITS


def segment_name(offset: int) -> str:
    """The name of the file whose first byte has the given offset: 20 decimal digits."""
    return f"{offset:0{SEGMENT_NAME_DIGITS}d}"


def segment_offset(name: str) -> int | None:
    """The offset a segment's name stands for, or None when it is no segment's name."""
    if len(name) == SEGMENT_NAME_DIGITS and name.isascii() and name.isdigit():
        return int(name)
    return None


@dataclass(frozen=True, slots=True)
class StorePaths:
    """Paths of one store. ``commit_log_dir`` is set when storePathCommitLog lies elsewhere."""

    root: Path
    commit_log_dir: Path | None = None

    # RocketMQ's own
    @property
    def commit_log(self) -> Path:
        return self.commit_log_dir or self.root / "commitlog"

    @property
    def consume_queue(self) -> Path:
        return self.root / "consumequeue"

    @property
    def consume_queue_ext(self) -> Path:
        return self.root / "consumequeue_ext"

    @property
    def index(self) -> Path:
        return self.root / "index"

    @property
    def config(self) -> Path:
        return self.root / "config"

    @property
    def checkpoint(self) -> Path:
        return self.root / "checkpoint"

    @property
    def abort(self) -> Path:
        return self.root / "abort"

    @property
    def abort_backup(self) -> Path:
        """Left beside ``abort`` by 5.x."""
        return self.root / "abort.bak"

    @property
    def lock(self) -> Path:
        return self.root / "lock"

    # ours
    @property
    def ours(self) -> Path:
        return self.root / "mqstore"

    @property
    def state(self) -> Path:
        return self.ours / "state"

    @property
    def format(self) -> Path:
        return self.ours / "format.json"

    @property
    def manifest(self) -> Path:
        """Written at a clean close, removed at open."""
        return self.ours / "clean-close.json"

    @property
    def running(self) -> Path:
        """How far the queues are complete and durable, written from time to time."""
        return self.ours / "running.json"

    @property
    def scrub(self) -> Path:
        """How far the scrub is, and what it has found."""
        return self.ours / "scrub.json"

    @property
    def blocks(self) -> Path:
        """Checksums of the log by block, one file per segment."""
        return self.ours / "blocks"

    @property
    def pins(self) -> Path:
        """Leases on ranges of the log."""
        return self.ours / "pins.json"

    @property
    def write_pause(self) -> Path:
        """There while an administrator lets nothing be stored."""
        return self.ours / "write-pause.json"

    @property
    def deleted_topics(self) -> Path:
        """Topics that were deleted while the log still holds their messages."""
        return self.ours / "deleted-topics.json"

    @property
    def fences(self) -> Path:
        """Epochs below which nobody may append in a name."""
        return self.ours / "fences.json"

    @property
    def quarantine(self) -> Path:
        return self.ours / "quarantine"

    @property
    def recovery_report(self) -> Path:
        return self.ours / "recovery.json"

    @property
    def broker_conf(self) -> Path:
        """A broker.conf that boots this very store."""
        return self.ours / "broker.conf"

    @property
    def staging(self) -> Path:
        """Files are made here and renamed into place; always on the commit log's file system."""
        if self.commit_log_dir is None:
            return self.ours / "staging"
        return self.commit_log_dir.parent / (self.commit_log_dir.name + ".mqstore-staging")

    @property
    def queue_staging(self) -> Path:
        """As ``staging``, for files of the store's root."""
        return self.ours / "staging"
