"""Registers all routes of store-writer."""

from __future__ import annotations

from mqstore.service.app import Api
from mqstore.service.settings_routes import SettingsRoutes
from mqstore.writer.backup_reports import BackupReports
from mqstore.writer.consumers.member_routes import MemberRoutes
from mqstore.writer.consumers.routes import ConsumerRoutes
from mqstore.writer.dead_letter_routes import DeadLetterRoutes
from mqstore.writer.event_routes import EventRoutes
from mqstore.writer.expiry_reports import ExpiryReports
from mqstore.writer.findings import FindingRoutes
from mqstore.writer.group_routes import GroupRoutes
from mqstore.writer.internal_routes import InternalRoutes
from mqstore.writer.produce_route import ProduceRoute
from mqstore.writer.quarantine_routes import QuarantineRoutes
from mqstore.writer.rebuild_routes import IndexRebuildRoutes
from mqstore.writer.replication.routes import ReplicationRoutes
from mqstore.writer.retention_routes import RetentionRoutes
from mqstore.writer.scrub_routes import ScrubRoutes
from mqstore.writer.service import WriterService
from mqstore.writer.shard_routes import ShardRoutes
from mqstore.writer.store_routes import StoreRoutes
from mqstore.writer.subscription_routes import SubscriptionRoutes
from mqstore.writer.topic_routes import TopicRoutes
from mqstore.writer.transactions.check_routes import CheckRoutes
from mqstore.writer.transactions.hot_routes import HotRoutes
from mqstore.writer.transactions.routes import TransactionRoutes
from mqstore.writer.write_routes import WriteRoutes


def add(api: Api, service: WriterService) -> None:
    """Register all routes of store-writer with ``api``."""
    ProduceRoute(service).add(api)
    TopicRoutes(service, service.topics.clear).add(api)
    GroupRoutes(service).add(api)
    ConsumerRoutes(service).add(api)
    MemberRoutes(service).add(api)
    DeadLetterRoutes(service).add(api)
    SubscriptionRoutes(service).add(api)
    StoreRoutes(service).add(api)
    WriteRoutes(service).add(api)
    FindingRoutes(service).add(api)
    ShardRoutes(service).add(api)
    SettingsRoutes(service.settings, lambda: service.store.config).add(api)
    EventRoutes(service).add(api)
    RetentionRoutes(service).add(api)
    HotRoutes(service).add(api)
    TransactionRoutes(service).add(api)
    CheckRoutes(service).add(api)
    InternalRoutes(service).add(api)
    ScrubRoutes(service).add(api)
    QuarantineRoutes(service).add(api)
    ExpiryReports(service).add(api)
    BackupReports(service).add(api)
    IndexRebuildRoutes(service).add(api)
    ReplicationRoutes(service).add(api)
