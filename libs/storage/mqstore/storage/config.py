"""Store settings, under RocketMQ's own names (MessageStoreConfig), defaults of 4.9.7.

A file or environment may use RocketMQ's camelCase names or ours in snake_case; older spellings are
accepted as aliases. Sizes are bytes, times milliseconds unless the name says otherwise.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, AliasChoices, BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from mqstore.storage.layout import QUEUE_ENTRY_SIZE

INT32_MAX = 2**31 - 1


class DamageRepair(StrEnum):
    """Whether the scrub repairs the damage that it finds in the log, or an operator does."""

    AUTOMATIC = "automatic"
    """The scrub, as soon as it has found it."""
    MANUAL = "manual"
    """An operator, by a command."""


class FlushDiskType(StrEnum):
    SYNC = "SYNC_FLUSH"
    ASYNC = "ASYNC_FLUSH"


def _hours(text: str) -> str:
    """Hours of the day, 0 to 23, joined by ``;``."""
    for hour in text.split(";"):
        if not (hour.isascii() and hour.isdigit() and int(hour) < 24):
            raise ValueError(f"{hour!r} is no hour of the day; write e.g. 04 or 04;16")
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
    mapped_file_size_consume_queue: Annotated[
        int,
        Field(
            ge=QUEUE_ENTRY_SIZE,
            le=INT32_MAX,
            validation_alias=_aliases("mappedFileSizeConsumeQueue", "mapedFileSizeConsumeQueue"),
        ),
    ] = 300_000 * QUEUE_ENTRY_SIZE
    enable_consume_queue_ext: bool = False
    mapped_file_size_consume_queue_ext: Annotated[int, Field(ge=1024, le=INT32_MAX)] = 48 << 20
    max_hash_slot_num: Annotated[int, Field(ge=1, le=INT32_MAX // 4)] = 5_000_000
    max_index_num: Annotated[int, Field(ge=2, le=INT32_MAX // 20)] = 20_000_000
    max_message_size: Annotated[int, Field(ge=1, le=INT32_MAX // 2)] = 4 << 20
    message_index_enable: bool = True
    enable_multi_dispatch: bool = False
    enable_lmq: bool = False
    max_lmq_consume_queue_num: Annotated[int, Field(ge=0)] = 20_000

    # flush
    flush_disk_type: FlushDiskType = FlushDiskType.ASYNC
    flush_interval_commit_log: Annotated[int, Field(ge=1)] = 500
    flush_commit_log_least_pages: Annotated[int, Field(ge=0)] = 4
    flush_commit_log_thorough_interval: Annotated[int, Field(ge=1)] = 10_000
    flush_interval_consume_queue: Annotated[int, Field(ge=1)] = 1_000
    flush_consume_queue_least_pages: Annotated[int, Field(ge=0)] = 2
    flush_consume_queue_thorough_interval: Annotated[int, Field(ge=1)] = 60_000
    sync_flush_timeout: Annotated[int, Field(ge=1)] = 5_000
    commit_interval_commit_log: Annotated[int, Field(ge=1)] = 200
    commit_commit_log_least_pages: Annotated[int, Field(ge=0)] = 4
    commit_commit_log_thorough_interval: Annotated[int, Field(ge=1)] = 200
    os_page_cache_busy_time_out_mills: Annotated[int, Field(ge=1)] = 1_000

    # repeats
    unique_key_window: Annotated[int, Field(ge=1)] = 600_000
    unique_key_window_count: Annotated[int, Field(ge=0, le=1 << 30)] = 1_000_000

    # memory
    warm_maped_file_enable: bool = False
    flush_least_pages_when_warm_maped_file: Annotated[int, Field(ge=1)] = 4_096
    transient_store_pool_enable: bool = False
    transient_store_pool_size: Annotated[int, Field(ge=1)] = 5
    fast_fail_if_no_buffer_in_store_pool: bool = False

    # retention
    file_reserved_time: Annotated[int, Field(ge=0, description="hours")] = 72
    destroy_maped_file_interval_forcibly: Annotated[
        int,
        Field(
            ge=0,
            validation_alias=_aliases(
                "destroyMapedFileIntervalForcibly", "destroyMappedFileIntervalForcibly"
            ),
        ),
    ] = 120_000
    redelete_hanged_file_interval: Annotated[int, Field(ge=1)] = 120_000
    delete_commit_log_files_interval: Annotated[
        int,
        Field(
            ge=0,
            validation_alias=_aliases("deleteCommitLogFilesInterval", "deletePhysicFilesInterval"),
        ),
    ] = 100
    delete_file_batch_max: Annotated[int, Field(ge=1)] = 10
    delete_consume_queue_files_interval: Annotated[int, Field(ge=0)] = 100
    delete_when: Annotated[str, AfterValidator(_hours)] = "04"
    clean_resource_interval: Annotated[int, Field(ge=1)] = 10_000
    clean_file_forcibly_enable: bool = True
    clean_file_forcibly_min_age: Annotated[int, Field(ge=0)] = 3_600_000
    disk_max_used_space_ratio: Annotated[int, Field(ge=10, le=100)] = 75
    disk_space_clean_forcibly_ratio: Annotated[int, Field(ge=30, le=100)] = 85
    disk_space_warning_level_ratio: Annotated[int, Field(ge=35, le=100)] = 90
    keep_for_groups: str = ""
    keep_disk_ceiling_ratio: Annotated[int, Field(ge=10, le=100)] = 88

    # index
    index_catch_up_size: Annotated[int, Field(ge=0, description="bytes")] = 4 << 30

    # delay
    message_delay_level: str = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
    flush_delay_offset_interval: Annotated[int, Field(ge=1)] = 10_000

    # scrub
    scrub_bytes_per_second: Annotated[int, Field(ge=0, le=1 << 32)] = 8 << 20
    scrub_interval_hours: Annotated[int, Field(ge=0, le=24 * 366)] = 168
    damage_repair: DamageRepair = DamageRepair.AUTOMATIC

    # topics and groups
    auto_create_topic_enable: bool = False
    default_topic_queue_nums: Annotated[int, Field(ge=1, le=1024)] = 8
    flush_consumer_offset_interval: Annotated[int, Field(ge=1)] = 5_000

    # filters
    enable_calc_filter_bit_map: bool = False
    max_error_rate_of_bloom_filter: Annotated[int, Field(ge=1, le=70, description="percent")] = 20
    expect_consumer_num_use_filter: Annotated[int, Field(ge=1, le=10_000)] = 32
    filter_data_clean_time_span: Annotated[int, Field(ge=0)] = 24 * 3_600_000

    # queries
    max_msgs_num_batch: Annotated[int, Field(ge=1)] = 64

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
