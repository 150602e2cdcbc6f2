"""Registers all routes of the query service."""

from __future__ import annotations

from mqstore.query.access_route import AccessRoute
from mqstore.query.bulk_route import BulkRoute
from mqstore.query.console.relay import ConsoleRelay
from mqstore.query.console.routes import ConsoleRoutes
from mqstore.query.dead_letter_routes import DeadLetterRoutes
from mqstore.query.event_routes import EventRoutes
from mqstore.query.finding_routes import FindingRoutes
from mqstore.query.group_routes import GroupRoutes
from mqstore.query.message_routes import MessageRoutes
from mqstore.query.pull_route import PullRoute
from mqstore.query.queue_routes import QueueRoutes
from mqstore.query.segment_routes import SegmentRoutes
from mqstore.query.service import QueryService
from mqstore.query.store_route import StoreRoute
from mqstore.query.trace_routes import TraceRoutes
from mqstore.service.app import Api
from mqstore.service.settings_routes import SettingsRoutes


def add(api: Api, service: QueryService) -> None:
    """Register all routes of query with ``api``."""
    TraceRoutes(service).add(api)  # first: a unique key may contain slashes, as in /trace
    MessageRoutes(service).add(api)
    BulkRoute(service).add(api)
    QueueRoutes(service).add(api)
    PullRoute(service).add(api)
    GroupRoutes(service).add(api)
    DeadLetterRoutes(service).add(api)
    EventRoutes(service).add(api)
    SegmentRoutes(service).add(api)
    StoreRoute(service).add(api)
    FindingRoutes(service).add(api)
    AccessRoute(api.auth).add(api)
    relay = ConsoleRelay(
        api,
        service.shards,
        service.local_writer,
        service.own_token,
        service.settings.coordinator_url,
    )
    ConsoleRoutes(relay).add(api)
    SettingsRoutes(service.settings).add(api)
