"""All requests of the clients, as methods of both."""

from __future__ import annotations

from mqstore.client.backup_calls import BackupCalls
from mqstore.client.consumer_calls import ConsumerCalls
from mqstore.client.events import EventCalls
from mqstore.client.group_calls import GroupCalls
from mqstore.client.lag_calls import LagCalls
from mqstore.client.lookup_calls import LookupCalls
from mqstore.client.produce_calls import ProduceCalls
from mqstore.client.rebuild_calls import RebuildCalls
from mqstore.client.retention_calls import RetentionCalls
from mqstore.client.store_calls import StoreCalls
from mqstore.client.topic_calls import TopicCalls
from mqstore.client.transaction_calls import TransactionCalls


class Calls(
    BackupCalls,
    ConsumerCalls,
    GroupCalls,
    LagCalls,
    LookupCalls,
    ProduceCalls,
    RebuildCalls,
    RetentionCalls,
    StoreCalls,
    TopicCalls,
    TransactionCalls,
    EventCalls,
):
    """The methods of each module of requests."""
