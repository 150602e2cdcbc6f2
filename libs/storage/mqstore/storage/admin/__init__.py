"""What people and clients change besides messages: topics, groups, consumer offsets.

Public: the values that ``Administration`` takes and returns, and RocketMQ's config tables, as the
store's own process keeps them and as another process follows them. Used by services and jobs.
"""

from mqstore.storage.admin.group_offsets import Commit, GroupOffset, OffsetChange, Position
from mqstore.storage.admin.groups import Group
from mqstore.storage.admin.topics import TopicChange
from mqstore.storage.tables.config_tables import (
    ConsumerOffsets,
    DelayOffsets,
    Source,
    TopicConfig,
    TopicTable,
)
from mqstore.storage.tables.consumer_filters import ConsumerFilters, FilterData
from mqstore.storage.tables.followed import Followed, FollowedTable
from mqstore.storage.tables.subscription_groups import GroupConfig

__all__ = [
    "Commit",
    "ConsumerFilters",
    "ConsumerOffsets",
    "DelayOffsets",
    "FilterData",
    "Followed",
    "FollowedTable",
    "Group",
    "GroupConfig",
    "GroupOffset",
    "OffsetChange",
    "Position",
    "Source",
    "TopicChange",
    "TopicConfig",
    "TopicTable",
]
