"""Store settings, under RocketMQ's own names (MessageStoreConfig), defaults of 4.9.7.

A file or environment may use RocketMQ's camelCase names or ours in snake_case; older spellings are
accepted as aliases. Sizes are bytes, times milliseconds unless the name says otherwise.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, AliasChoices, BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from mqstore.storage.delay_levels import DelayLevels
from mqstore.storage.layout import QUEUE_ENTRY_SIZE

INT32_MAX = 2**31 - 1


class DamageRepair(StrEnum):
    """Whether the scrub repairs the damage that it finds in the log, or an operator does."""

    AUTOMATIC = "automatic"
    """The scrub, as soon as it has found it."""
    MANUAL = "manual"
    """An operator, by a command."""


class FlushDiskType(StrEnum):
    """flushDiskType: whether a put waits for its sync by default."""

    SYNC = "SYNC_FLUSH"
    ASYNC = "ASYNC_FLUSH"


def _hours(text: str) -> str:
    """Hours of the day, 0 to 23, joined by ``;``."""
    for hour in text.split(";"):
        if not (hour.isascii() and hour.isdigit() and len(hour) <= 2 and int(hour) < 24):
            raise ValueError(f"{hour!r} is no hour of the day; write e.g. 04 or 04;16")
    return text


def _levels(text: str) -> str:
    """Delays of levels, joined by spaces."""
    DelayLevels(text)
    return text


def _aliases(*names: str) -> AliasChoices:
    return AliasChoices(*names)


class StoreConfig(BaseModel):
    """Settings of one store. Immutable; sizes of an existing store come from its files."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True
    )

    # files
    mapped_file_size_commit_log: Annotated[
        int,
        Field(
            ge=4096,
            le=INT32_MAX,
            validation_alias=_aliases("mappedFileSizeCommitLog", "mapedFileSizeCommitLog"),
        ),
    ] = 1 << 30
    """Bytes of a segment; `mqstore run` creates stores with 64 MiB."""
    mapped_file_size_consume_queue: Annotated[
        int,
        Field(
            ge=QUEUE_ENTRY_SIZE,
            le=INT32_MAX,
            validation_alias=_aliases("mappedFileSizeConsumeQueue", "mapedFileSizeConsumeQueue"),
        ),
    ] = 300_000 * QUEUE_ENTRY_SIZE
    """Bytes of a queue file, rounded up to whole entries."""
    enable_consume_queue_ext: bool = False
    """With `enableCalcFilterBitMap`: entries of topics with subscriptions get a unit in
    `consumequeue_ext/`."""
    mapped_file_size_consume_queue_ext: Annotated[int, Field(ge=1024, le=INT32_MAX)] = 48 << 20
    """Bytes of a file of units; existing files keep their size."""
    max_hash_slot_num: Annotated[int, Field(ge=1, le=INT32_MAX // 4)] = 5_000_000
    """Hash slots of an index file."""
    max_index_num: Annotated[int, Field(ge=2, le=INT32_MAX // 20)] = 20_000_000
    """Entries of an index file."""
    max_message_size: Annotated[int, Field(ge=1, le=INT32_MAX // 2)] = 4 << 20
    """Bytes of a body, and of a whole batch."""
    message_index_enable: bool = True
    """Write the index; without it there are no key queries."""
    enable_multi_dispatch: bool = False
    """The property INNER_MULTI_DISPATCH puts messages into further queues."""
    enable_lmq: bool = False
    """Whether the further queues of a message are light queues, with the id 0."""
    max_lmq_consume_queue_num: Annotated[int, Field(ge=0)] = 20_000
    """Light queues of the store, at most."""

    # flush
    flush_disk_type: FlushDiskType = FlushDiskType.ASYNC
    """Durability of a produce that names none. SYNC_FLUSH: on disk before the reply."""
    flush_interval_commit_log: Annotated[int, Field(ge=1)] = 500
    """Milliseconds between two flushes of the log."""
    flush_commit_log_least_pages: Annotated[int, Field(ge=0)] = 4
    """Pages that are dirty before the log is flushed."""
    flush_commit_log_thorough_interval: Annotated[int, Field(ge=1)] = 10_000
    """Milliseconds after which the log is flushed, however few pages are dirty."""
    flush_interval_consume_queue: Annotated[int, Field(ge=1)] = 1_000
    """Milliseconds between two flushes of queues."""
    flush_consume_queue_least_pages: Annotated[int, Field(ge=0)] = 2
    """Pages that are dirty before a queue is flushed."""
    flush_consume_queue_thorough_interval: Annotated[int, Field(ge=1)] = 60_000
    """Milliseconds after which queues are flushed, however few pages are dirty."""
    sync_flush_timeout: Annotated[int, Field(ge=1)] = 5_000
    """Milliseconds that a synchronous produce waits for the disk."""
    commit_interval_commit_log: Annotated[int, Field(ge=1)] = 200
    """Milliseconds between two commits of the buffer pool."""
    commit_commit_log_least_pages: Annotated[int, Field(ge=0)] = 4
    """Pages that are filled before the buffer pool is committed."""
    commit_commit_log_thorough_interval: Annotated[int, Field(ge=1)] = 200
    """Milliseconds after which the buffer pool is committed, however few pages are filled."""
    os_page_cache_busy_time_out_mills: Annotated[int, Field(ge=1)] = 1_000
    """Milliseconds that a put may wait for the next segment before further puts that need it are
    refused."""

    # repeats
    unique_key_window: Annotated[int, Field(ge=1)] = 600_000
    """Milliseconds before the newest message in which a duplicate unique key is recognised; steps
    of the clock do not count."""
    unique_key_window_count: Annotated[int, Field(ge=0, le=1 << 30)] = 1_000_000
    """Unique keys that are remembered at least, 86 bytes each at most (64 MiB for a million); 0:
    duplicates are not recognised."""

    # memory
    warm_maped_file_enable: bool = False
    """Load a new segment into memory and lock it there until it is full (`mlock`). It takes the
    memory of one or two segments, which counts against the pod's limit; a put that needs the
    segment meanwhile waits at most 5 s."""
    flush_least_pages_when_warm_maped_file: Annotated[int, Field(ge=1)] = 4_096
    """Pages that are touched at a time; with SYNC_FLUSH each part is synced before the next."""
    transient_store_pool_enable: bool = False
    """Encode into locked buffers, from which a commit copies to the page cache; with ASYNC_FLUSH
    only."""
    transient_store_pool_size: Annotated[int, Field(ge=1)] = 5
    """Buffers of a segment's size each, allocated and locked at the start."""
    fast_fail_if_no_buffer_in_store_pool: bool = False
    """Refuse a put when there are two or more buffers and all wait for a commit; otherwise that put
    commits first."""

    # retention
    file_reserved_time: Annotated[int, Field(ge=0)] = 72
    """Hours that a segment is kept after its last modification."""
    destroy_maped_file_interval_forcibly: Annotated[
        int,
        Field(
            ge=0,
            validation_alias=_aliases(
                "destroyMapedFileIntervalForcibly", "destroyMappedFileIntervalForcibly"
            ),
        ),
    ] = 120_000
    """Milliseconds after the first attempt to delete a file; then it is deleted even while read."""
    redelete_hanged_file_interval: Annotated[int, Field(ge=1)] = 120_000
    """Milliseconds between two attempts to delete a file that is being read."""
    delete_commit_log_files_interval: Annotated[
        int,
        Field(
            ge=0,
            validation_alias=_aliases("deleteCommitLogFilesInterval", "deletePhysicFilesInterval"),
        ),
    ] = 100
    """Milliseconds between the deletions of two segments."""
    delete_file_batch_max: Annotated[int, Field(ge=1)] = 10
    """Segments that one round deletes."""
    delete_consume_queue_files_interval: Annotated[int, Field(ge=0)] = 100
    """Milliseconds between the deletions of the files of two queues."""
    delete_when: Annotated[str, AfterValidator(_hours)] = "04"
    """Hours of the day, local time, at which expired files are deleted: `04` or `04;16`."""
    clean_resource_interval: Annotated[int, Field(ge=1)] = 10_000
    """Milliseconds between two rounds of deletion, and between two checks of the disk."""
    clean_file_forcibly_enable: bool = True
    """False: no file is deleted before its time, however full the disk."""
    clean_file_forcibly_min_age: Annotated[int, Field(ge=0)] = 3_600_000
    """Milliseconds since its last write before which a segment is not deleted early; puts are
    refused (507) instead. 0: no such limit. Not a setting of RocketMQ."""
    disk_max_used_space_ratio: Annotated[int, Field(ge=10, le=100)] = 75
    """Percent of a volume; above, expired files are deleted at any hour."""
    disk_space_clean_forcibly_ratio: Annotated[int, Field(ge=30, le=100)] = 85
    """Percent of a volume; above, files are deleted before they expire."""
    disk_space_warning_level_ratio: Annotated[int, Field(ge=35, le=100)] = 90
    """Percent of a volume; above, nothing is stored (507) until every volume is at or below
    `diskSpaceCleanForciblyRatio`."""
    keep_for_groups: str = ""
    """Consumer groups, joined by `;`, whose unconsumed messages are kept."""
    keep_disk_ceiling_ratio: Annotated[int, Field(ge=10, le=100)] = 88
    """Percent of a volume; above, pins, `keepForGroups` and delayed messages keep no file."""

    # index
    index_catch_up_size: Annotated[int, Field(ge=0)] = 4 << 30
    """Bytes of log that the writer indexes by itself after an opening; more is left to a
    rebuild."""

    # delay
    message_delay_level: Annotated[str, AfterValidator(_levels)] = (
        "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
    )
    """Delay of each `delayLevel`, from 1, in s, m, h or d."""
    flush_delay_offset_interval: Annotated[int, Field(ge=1)] = 10_000
    """Milliseconds between two saves of how far delayed messages are delivered."""

    # transactions
    reject_transaction_message: bool = False
    """Refuse to begin transactions (409), as a broker does; those that are pending are decided."""

    # scrub
    scrub_bytes_per_second: Annotated[int, Field(ge=0, le=1 << 32)] = 8 << 20
    """Bytes of log per second that the scrub compares with their block checksums; 0: never."""
    scrub_interval_hours: Annotated[int, Field(ge=0, le=24 * 366)] = 168
    """Hours from the beginning of one scrub of the log to the next."""
    damage_repair: DamageRepair = DamageRepair.AUTOMATIC
    """Repair of damage that the scrub finds. automatic: the scrub repairs it, unless tombstones
    would take more than 16 MiB; manual: an operator repairs it by a command."""

    # topics and groups
    auto_create_topic_enable: bool = False
    """A produce to an unknown topic creates it. RocketMQ's default is true; here a misspelt name
    is an error."""
    default_topic_queue_nums: Annotated[int, Field(ge=1, le=1024)] = 8
    """Queues of a topic that is created so."""
    auto_create_subscription_group: bool = True
    """A receive, commit, subscription or member of an unknown group makes it. false: an
    administrator creates groups, and others are refused (404)."""
    max_topics: Annotated[int, Field(ge=1)] = 20_000
    """Topics that may be, without those of groups (`%RETRY%…`, `%DLQ%…`); more are refused
    (409)."""
    max_queues: Annotated[int, Field(ge=1)] = 30_000
    """Queues of these topics together; more are refused (409)."""
    max_groups: Annotated[int, Field(ge=1)] = 10_000
    """Consumer groups that may be, each with a retry and a dead-letter topic; more are refused
    (409)."""
    max_group_members: Annotated[int, Field(ge=1, le=4_096)] = 256
    """Members of one ordered group; more are refused (409)."""
    flush_consumer_offset_interval: Annotated[int, Field(ge=1)] = 5_000
    """Milliseconds between two saves of consumer offsets; after a kill, messages consumed since
    are delivered again."""

    # filters
    enable_calc_filter_bit_map: bool = False
    """Write into each unit which subscriptions want the message."""
    max_error_rate_of_bloom_filter: Annotated[int, Field(ge=1, le=70)] = 20
    """Percent of subscriptions that a bitmap may mistake for others; with
    `expectConsumerNumUseFilter` it gives the bits of a bitmap."""
    expect_consumer_num_use_filter: Annotated[int, Field(ge=1, le=10_000)] = 32
    """Subscriptions of one topic that a bitmap is sized for."""
    filter_data_clean_time_span: Annotated[int, Field(ge=0)] = 24 * 3_600_000
    """Milliseconds that an ended subscription is remembered."""

    # queries
    max_msgs_num_batch: Annotated[int, Field(ge=1)] = 64
    """Offsets of one of RocketMQ's own key queries."""

    @property
    def uses_transient_store_pool(self) -> bool:
        """transientStorePoolEnable, which RocketMQ heeds with ASYNC_FLUSH only (and on no slave,
        which a store of ours never is)."""
        is_async = self.flush_disk_type is FlushDiskType.ASYNC
        return self.transient_store_pool_enable and is_async

    @property
    def writes_bitmaps(self) -> bool:
        """Whether entries of topics with subscriptions get units with a bitmap."""
        return self.enable_consume_queue_ext and self.enable_calc_filter_bit_map

    @property
    def queue_file_size(self) -> int:
        """ConsumeQueue file size: mappedFileSizeConsumeQueue rounded up to whole entries."""
        entries = -(-self.mapped_file_size_consume_queue // QUEUE_ENTRY_SIZE)
        return entries * QUEUE_ENTRY_SIZE
