"""The three services, started in this process on a small store that is deleted afterwards."""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from prometheus_client import Metric

from mqstore.coordinator.service import CoordinatorService
from mqstore.query import __main__ as query
from mqstore.service import settings
from mqstore.storage import MessageStore
from mqstore.storage.directory import write_sealed
from mqstore.storage.host import Seams
from mqstore.storage.puts import Message
from mqstore.wire.backup_reports import BackupReport
from mqstore.wire.examples.reports import BACKUPS, EXPIRY
from mqstore.wire.reports import ExpirySummary
from mqstore.writer import __main__ as writer

NAMES: Final = ("store-writer", "query", "transaction-coordinator")


@dataclass(frozen=True, slots=True)
class Described:
    """The API and the metrics of a service."""

    api: dict[str, Any]
    """Its OpenAPI document."""
    metrics: tuple[Metric, ...]


@cache
def described() -> dict[str, Described]:
    """The services, by name."""
    with tempfile.TemporaryDirectory() as directory:
        return asyncio.run(_describe(directory))


def _fill(store: MessageStore, seams: Seams) -> None:
    """Store what some metrics exist for: a message, and the reports of jobs."""
    store.create_topic("orders")
    store.append(Message("orders", 0, b"", b"", store.host, store.host, 1))
    summary = ExpirySummary.model_validate(EXPIRY)
    write_sealed(seams.files, store.paths.expiry_report, summary)
    write_sealed(seams.files, store.paths.backup_report, BackupReport.model_validate(BACKUPS))


async def _describe(directory: str) -> dict[str, Described]:
    given = settings.load(
        store=directory,
        writer_port=0,
        store_config={"mapped_file_size_commit_log": 1 << 20, "max_index_num": 100},
    )
    stores = writer.build(given)
    stores.address = "127.0.0.1:8081"
    with MessageStore.open(Path(directory), given.store_config, stores.seams) as store:
        _fill(store, stores.seams)
    await stores.start()
    reads = query.build(given)
    await reads.start()
    coordinates = CoordinatorService(given)
    try:
        interfaces = stores.api, reads.api, coordinates.api
        return {
            name: Described(api.app.openapi(), tuple(api.metrics.registry.collect()))
            for name, api in zip(NAMES, interfaces, strict=True)
        }
    finally:
        await reads.stop()
        await stores.stop()
