"""``store/mqstore/format.json``: the identity of the store, and the layout of its files.

RocketMQ keeps none of this: it does not notice wrong sizes, or another store's volume. A
``broker.conf`` beside it lets a real broker open this very directory.
"""

from __future__ import annotations

import json
from typing import Annotated, Final, Literal

from pydantic import ConfigDict, Field

from mqstore.storage import broker_settings, java_properties
from mqstore.storage.config import StoreConfig
from mqstore.storage.errors import StoreDamaged, StoreOfAnother, StoreUnsupported
from mqstore.storage.layout import StoreFormat
from mqstore.storage.lost_data import ByteRange
from mqstore.storage.metadata import sealed_json
from mqstore.storage.metadata.sealed_json import Value
from mqstore.storage.paths import StorePaths, how_to_repair
from mqstore.storage.seams import FileSystem

MAGIC: Final = "mqstore-format"
VERSION: Final = 1
LEAST_READER: Final = 1
"""The oldest version of this library that can read the file as the present one writes it."""


AbsolutePath = Annotated[str, Field(pattern=r"^/[^\x00]*$")]
"""A path that a file names; no system call takes one with NUL."""
Settings = dict[str, bool | int | str]
"""Settings of a store, in RocketMQ's names."""


class Sizes(Value):
    """Sizes of the store's files, in RocketMQ's own names; bytes, except the two counts."""

    mapped_file_size_commit_log: int
    mapped_file_size_consume_queue: int
    max_hash_slot_num: int
    max_index_num: int

    @classmethod
    def of(cls, config: StoreConfig) -> Sizes:
        """The sizes of a config."""
        return cls(
            mapped_file_size_commit_log=config.mapped_file_size_commit_log,
            mapped_file_size_consume_queue=config.queue_file_size,
            max_hash_slot_num=config.max_hash_slot_num,
            max_index_num=config.max_index_num,
        )


class Owner(Value):
    """The process that opened the store last; information for people: the lock decides."""

    pid: int
    host: str


class FormatFile(Value):
    """The content of format.json. Immutable; unknown fields of a newer version are kept."""

    model_config = ConfigDict(extra="allow")

    magic: Literal["mqstore-format"] = MAGIC
    version: int = VERSION
    least_reader: int = LEAST_READER
    store_id: str
    """32 hexadecimal digits, generated once."""
    shard: str
    epoch: int
    """Number of times that the store was opened for writing."""
    rocketmq_format: StoreFormat
    sizes: Sizes
    settings: Settings | None = None
    """Settings of operators, see ``store_settings``; None if an older version wrote this file."""
    store_path_commit_log: AbsolutePath | None = None
    commit_log_is_marked: bool = False
    """Whether the log's directory names this store and root as its owner (``log_owner``)."""
    store_hosts: tuple[str, ...] = ()
    """Every STOREHOST that records of this store were written with."""
    lock_modified_ms: int | None = None
    """Modification time of ``lock`` when we took it: a broker writes it at each of its starts."""
    block_epoch: int | None = None
    """The last epoch in which the block checksums covered every sync of the log."""
    facts_epoch: int | None = None
    """The last epoch whose writer maintained ``log_begin`` and ``missing``."""
    running_from: int | None = None
    """From this epoch on, running.json states no more of the queues than is on disk: each opening
    since has removed a note that reached beyond the log's end."""
    log_begin: int = 0
    """Physical offset of the first segment at that opening."""
    missing: tuple[ByteRange, ...] = ()
    """Ranges of the log that are known to be absent: a broker left the store so, or their loss was
    accepted."""
    owner: Owner | None = None
    deletes: bool = True
    """Whether the process that opened the store last deletes segments; if not, its settings of
    retention are not in force."""


def load(files: FileSystem, paths: StorePaths) -> FormatFile | None:
    """Load format.json; None without one.

    Raises StoreDamaged (unreadable), StoreUnsupported (newer).
    """
    if files.stat(paths.format) is None:
        return None
    raw = files.read(paths.format)
    try:
        content = sealed_json.unseal(raw)
        _refuse_newer(json.loads(content), paths)
        return FormatFile.model_validate_json(content)
    except (ValueError, RecursionError) as error:  # a ValidationError is a ValueError
        raise StoreDamaged(
            f"{paths.format} cannot be read ({type(error).__name__}); restore it from a copy, or "
            f"let the store's layout be found from its files: {how_to_repair(paths.root)}"
        ) from error


def load_or_lose(files: FileSystem, paths: StorePaths) -> tuple[FormatFile | None, str | None]:
    """Load format.json, or None and why it cannot be read: the store's layout is then found from
    its files.

    Raises StoreDamaged where it may have named another place of the log, without which all else
    would be cut; StoreUnsupported (newer).
    """
    try:
        return load(files, paths), None
    except StoreDamaged as error:
        if files.stat(paths.consume_queue) is not None and not files.list(paths.commit_log):
            raise StoreDamaged(
                f"{paths.format} cannot be read, and {paths.commit_log} holds no log: restore it "
                "from a copy, or, where the log is in another directory, remove it and name that "
                "directory with storePathCommitLog (MQSTORE_STORE_PATH_COMMIT_LOG)"
            ) from error
        return None, str(error)


def _refuse_newer(content: object, paths: StorePaths) -> None:
    least = content.get("leastReader") if isinstance(content, dict) else None
    if isinstance(least, int) and least > VERSION:
        raise StoreUnsupported(
            f"{paths.format} needs version {least} of mqstore and this is version {VERSION}; "
            "use a newer mqstore"
        )


def has_block_checksums(content: FormatFile, lock_modified_ms: int | None) -> bool:
    """Whether the block checksums are of the present log: no broker, and no version of ours without
    them, may have changed it."""
    return (
        content.block_epoch == content.epoch
        and lock_modified_ms is not None
        and lock_modified_ms == content.lock_modified_ms
    )


def text_of(content: FormatFile) -> bytes:
    """The bytes of format.json."""
    return sealed_json.encode(content, in_lines=True)


def refuse_another(found: FormatFile, store_id: str | None, shard: str) -> None:
    """Raise StoreOfAnother, naming both, unless the directory is the expected store's shard."""
    if store_id is not None and found.store_id != store_id.replace("-", "").lower():
        raise StoreOfAnother(
            f"this directory holds store {found.store_id} and store {store_id} was requested; "
            "mount the right volume, or adopt this one explicitly"
        )
    if found.shard != shard:
        raise StoreOfAnother(
            f"this directory holds shard {found.shard} of store {found.store_id} and shard "
            f"{shard} was requested; mount the right volume, or adopt this one explicitly"
        )


def broker_conf(content: FormatFile, config: StoreConfig, paths: StorePaths) -> str:
    """The text of a ``broker.conf`` that boots a real broker of the store's format on this
    directory, with each setting of the store that was set and that a broker has."""
    sizes = content.sizes
    settings = {
        "brokerClusterName": "DefaultCluster",
        "brokerName": f"mqstore-{content.shard}",
        "brokerId": "0",
        "storePathRootDir": str(paths.root),
        "storePathCommitLog": str(paths.commit_log),
        "mappedFileSizeCommitLog": str(sizes.mapped_file_size_commit_log),
        "mappedFileSizeConsumeQueue": str(sizes.mapped_file_size_consume_queue),
        "enableConsumeQueueExt": str(config.enable_consume_queue_ext).lower(),
        "mappedFileSizeConsumeQueueExt": str(config.mapped_file_size_consume_queue_ext),
        "enableCalcFilterBitMap": str(config.enable_calc_filter_bit_map).lower(),
        "maxHashSlotNum": str(sizes.max_hash_slot_num),
        "maxIndexNum": str(sizes.max_index_num),
        "maxMessageSize": str(config.max_message_size),
        "flushDiskType": config.flush_disk_type.value,
        "fileReservedTime": str(config.file_reserved_time),
        "deleteWhen": config.delete_when,
        "diskMaxUsedSpaceRatio": str(config.disk_max_used_space_ratio),
        "diskSpaceCleanForciblyRatio": str(config.disk_space_clean_forcibly_ratio),
        "diskSpaceWarningLevelRatio": str(config.disk_space_warning_level_ratio),
        "keepForGroups": config.keep_for_groups,
        "keepDiskCeilingRatio": str(config.keep_disk_ceiling_ratio),
        "cleanFileForciblyEnable": str(config.clean_file_forcibly_enable).lower(),
        "messageDelayLevel": config.message_delay_level,
        "messageIndexEnable": str(config.message_index_enable).lower(),
        "enableMultiDispatch": str(config.enable_multi_dispatch).lower(),
        "enableLmq": str(config.enable_lmq).lower(),
        "maxErrorRateOfBloomFilter": str(config.max_error_rate_of_bloom_filter),
        "expectConsumerNumUseFilter": str(config.expect_consumer_num_use_filter),
        "filterDataCleanTimeSpan": str(config.filter_data_clean_time_span),
    }
    given = content.settings or {}
    for name in sorted(given.keys() & broker_settings.NAMES - settings.keys()):
        value = given[name]
        settings[name] = str(value).lower() if isinstance(value, bool) else str(value)
    if host := next(iter(content.store_hosts), None):
        settings["brokerIP1"], _, settings["listenPort"] = host.rpartition(":")
    head = f"# boots RocketMQ {content.rocketmq_format.value} on store {content.store_id}\n"
    return head + java_properties.dump(settings)


def read_broker_conf(files: FileSystem, paths: StorePaths) -> dict[str, str]:
    """Return what ``broker_conf`` wrote; nothing where it cannot be read.

    Versions before wrote paths in UTF-8, without escapes.
    """
    content = files.read(paths.broker_conf)
    try:
        return {each.name: each.value for each in java_properties.parse(content, "utf-8")}
    except ValueError:
        return {}
