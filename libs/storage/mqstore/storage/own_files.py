"""The files of ``mqstore/`` in a store's root, which RocketMQ does not read: declared here, once.

``paths`` has their names from here, ``metadata.sealed_json`` reads and writes the sealed ones; a
backup, ``verify``, a repair and docs/formats.md go by the fields.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final


class Backup(Enum):
    """When a backup reads a file, seen from its choice of the log's end."""

    NEVER = "never"
    BEFORE = "before"
    """Its content refers to the log."""
    AFTER = "after"
    """Its content is about topics, groups or the store."""


@dataclass(frozen=True, slots=True)
class OwnFile:
    """A file of ours, or all files of a directory."""

    name: str
    """The name in ``mqstore/``; a directory ends in ``/``."""
    content: str
    """One phrase in Markdown for docs/formats.md."""
    is_sealed: bool = True
    """Whether it is JSON with a checksum, see ``metadata.sealed_json``."""
    if_unreadable: str = ""
    """The consequence, to follow "cannot be read, "."""
    backup: Backup = Backup.NEVER
    is_progress: bool = False
    """Whether its content may be ahead of a log that is cut. Without it the store finds from the
    log which messages were delivered or settled, and may deliver some of them again."""
    stops_opening: bool = False
    """Whether the store is not opened while it cannot be read: no repair sets it aside."""
    is_derived: bool = False
    """Whether an opening writes it anew from others, so that a repair keeps no copy."""


FORMAT: Final = OwnFile(
    "format.json",
    "store id, shard, epoch, RocketMQ's format, file sizes, given settings, whether its last "
    "process deletes segments, every STOREHOST so far, modification time of `lock`",
    if_unreadable="so the store is not opened before a repair",
    backup=Backup.AFTER,
)
BROKER_CONF: Final = OwnFile(
    "broker.conf",
    "settings with which a broker opens this directory; written at each opening for writing",
    is_sealed=False,
    is_derived=True,
)
STATE: Final = OwnFile(
    "state",
    "page of 64-bit words that the writer publishes to readers, see below",
    is_sealed=False,
)
BLOCKS: Final = OwnFile(
    "blocks/", "block checksums of the segment of the same name, see below", is_sealed=False
)
RUNNING: Final = OwnFile(
    "running.json",
    "how far queues are complete and on disk; written from time to time",
    if_unreadable="so the next opening does without it",
    is_derived=True,
)
CLEAN_CLOSE: Final = OwnFile(
    "clean-close.json",
    "the state of the files after the last clean close; removed by an opening",
    if_unreadable="so the next opening does without it",
    is_derived=True,
)
RECOVERY: Final = OwnFile(
    "recovery.json", "plan and result of the last opening", is_sealed=False, is_derived=True
)
IMPORT: Final = OwnFile(
    "import.json",
    "the import that was begun and has not ended: its source, and the log's end before it",
    if_unreadable="so the import is not continued; `--restart` forgets it",
)
ACCEPTED_LOSS: Final = OwnFile(
    "accepted-loss.json",
    "a loss that an operator accepted, until the next opening",
    if_unreadable="so the loss has to be accepted again",
)
LOSSES: Final = OwnFile(
    "losses.json",
    "all losses that were accepted",
    if_unreadable="so accepted losses are not listed any more",
    backup=Backup.AFTER,
)
DELETED_TOPICS: Final = OwnFile(
    "deleted-topics.json",
    "deleted topics with messages in the log: below which offset, and the next offset of each "
    "queue; `expired`: notes up to that offset were removed after retention; `queuesIncomplete`: "
    "the next opening makes all queues again, since a deletion was withdrawn. Removed once a "
    "broker opened the store",
    if_unreadable="so messages of deleted topics may come back",
    backup=Backup.AFTER,
)
FOLLOWER: Final = OwnFile(
    "follower.json",
    "the leader that the store follows, or followed before it was promoted",
    if_unreadable="so the store is not opened: remove it if the store never was a follower",
    stops_opening=True,
    backup=Backup.AFTER,
)
EPOCHS: Final = OwnFile(
    "epochs.json",
    "epochs of the log: number, first offset and store id of the leader of each; `logId`, the "
    "store id of its first leader; `led`: this store leads, or did before its log was compared "
    "with a later leader's. Absent: never led with followers",
    if_unreadable="so the store is not opened: remove it if the store has no followers",
    stops_opening=True,
    backup=Backup.AFTER,
)
TRUNCATION: Final = OwnFile(
    "truncation.json",
    "a diverged tail of the log, which the next opening cuts: first offset, end, messages, leader "
    "and epoch",
    if_unreadable="so the store is not opened: remove it, and follow the leader again",
    stops_opening=True,
)
WRITE_PAUSE: Final = OwnFile(
    "write-pause.json", "reason and time of a pause of writes", if_unreadable="so writes are paused"
)
KEY_OWNERS: Final = OwnFile(
    "key-owners.json",
    "shards that own unique keys and ordering keys, those before, and when that changed; without "
    "it the record of another shard is copied",
    if_unreadable="so the record of another shard is copied",
)
SHARED_GROUPS: Final = OwnFile(
    "shared-groups.json",
    "messages behind the offsets of shared groups that are not acknowledged, with their attempts; "
    "the physical offset behind which an opening looks for copies of returned ones",
    if_unreadable="so messages that were acknowledged out of order are delivered again",
    backup=Backup.BEFORE,
    is_progress=True,
)
ORDERED_GROUPS: Final = OwnFile(
    "ordered-groups.json",
    "members of ordered groups, their queues and epochs, and the highest epoch",
    if_unreadable="so the members have to join again",
    backup=Backup.AFTER,
)
EXPIRED_UNREAD: Final = OwnFile(
    "expired-unread.json",
    "by group and topic, the number of messages that expired before the group's offset passed "
    "them; may be removed",
    if_unreadable="so expired messages are counted from 0 again",
    backup=Backup.BEFORE,
)
DEAD_LETTERS: Final = OwnFile(
    "dead-letters.json",
    "ranges of queue offsets of dead letters that were resent or purged, and the place of the last "
    "one; may be removed",
    if_unreadable="so dead letters that were settled are listed again",
    backup=Backup.BEFORE,
    is_progress=True,
)
ARCHIVE: Final = OwnFile(
    "archive.json",
    "offset up to which the log is archived, place, start; exists while retention waits for an "
    "archive",
    if_unreadable="so the next opening sets it aside, and retention does not wait",
    backup=Backup.BEFORE,
)
PINS: Final = OwnFile(
    "pins.json",
    "leases on ranges of the log: name, from, to, reason, end",
    if_unreadable="so the next opening sets it aside, and nothing is pinned",
)
CLOCK: Final = OwnFile(
    "clock.json",
    "clock steps: offset, size, time; difference of wall and monotonic clock since the boot",
    if_unreadable="so the next opening forgets which steps the clock made",
    backup=Backup.AFTER,
)
EXPIRY_REPORT: Final = OwnFile(
    "expiry-report.json",
    "summary of the last expiry report; may be removed at any time",
    if_unreadable="so the last expiry report is not shown",
)
BACKUP_REPORT: Final = OwnFile(
    "backup-report.json",
    "last results of backups; may be removed at any time",
    if_unreadable="so the last backups are not shown",
)
SCRUB: Final = OwnFile(
    "scrub.json",
    "progress and findings of the scrub; may be removed at any time",
    if_unreadable="so the scrub begins anew",
)
QUARANTINE: Final = OwnFile(
    "quarantine/",
    "directories with bytes that were cut or replaced (`data`), and their place (`entry.json`)",
    is_sealed=False,
)
INDEX_REBUILD: Final = OwnFile(
    "index-rebuild/", "index files that a rebuild makes", is_sealed=False
)
INDEX_JOURNAL: Final = OwnFile(
    "index-rebuild.json",
    "journal that replaces the old index files: names, sizes, CRC-32C; completed by the next "
    "opening",
    if_unreadable="so the rebuild of the index is given up",
)
INDEX_LOST: Final = OwnFile(
    "index-lost.json",
    "files of the index that are absent or have a damaged header; removed by a rebuild, or by an "
    "opening that builds the index",
    is_sealed=False,
)
WRITER: Final = OwnFile(
    "writer.json",
    "address (`url`) and `pid` of the store-writer; without effect while `lock` is free",
    is_sealed=False,
)
LOCK: Final = OwnFile("lock", "held together with the `lock` of the store", is_sealed=False)
STAGING: Final = OwnFile(
    "staging/", "files that are being made; emptied by each opening", is_sealed=False
)
JOURNALS: Final = OwnFile(
    "*.journal",
    "`topics.journal`, `subscriptionGroup.journal`, `consumerFilter.journal`: changes that the "
    "file of that name in `config/` lacks, see below; each line is sealed",
    is_sealed=False,
    backup=Backup.AFTER,
)

OWN_FILES: Final = tuple(each for each in list(globals().values()) if isinstance(each, OwnFile))
"""Every file of ours."""
BY_NAME: Final = {each.name: each for each in OWN_FILES}
"""The same by name."""
