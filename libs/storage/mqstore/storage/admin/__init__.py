"""Topics, groups and consumer offsets: what operators and clients change besides messages.

Public: the values that ``Administration`` takes and returns, and RocketMQ's config tables, as the
store's own process keeps them and as another process reads them. Used by services and jobs.
"""

from mqstore.storage.admin.group_offsets import Commit, GroupOffset, OffsetChange, Position
from mqstore.storage.admin.groups import Group
from mqstore.storage.admin.table_texts import TableTexts
from mqstore.storage.admin.topics import TopicChange
from mqstore.storage.metadata.key_owners import FormerOwners, KeyOwners, KeyOwnersFile
from mqstore.storage.tables.config_tables import (
    ConsumerOffsets,
    DelayOffsets,
    TopicConfig,
    TopicTable,
)
from mqstore.storage.tables.consumer_filters import ConsumerFilters, FilterData
from mqstore.storage.tables.followed_table import FollowedTable, TableSnapshot
from mqstore.storage.tables.subscription_groups import GroupConfig, SubscriptionGroups
from mqstore.storage.tables.table import Source

__all__ = [
    "Commit",
    "ConsumerFilters",
    "ConsumerOffsets",
    "DelayOffsets",
    "FilterData",
    "FollowedTable",
    "FormerOwners",
    "Group",
    "GroupConfig",
    "GroupOffset",
    "KeyOwners",
    "KeyOwnersFile",
    "OffsetChange",
    "Position",
    "Source",
    "SubscriptionGroups",
    "TableSnapshot",
    "TableTexts",
    "TopicChange",
    "TopicConfig",
    "TopicTable",
]
