"""A store-writer in this process, with topics, whose table of unique keys is prepared."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

from mqstore.service.settings import Settings
from mqstore.storage import StoreConfig
from mqstore.writer.service import WriterService


async def open_writer(root: Path, config: StoreConfig, topics: Mapping[str, int]) -> WriterService:
    """Start it over a new store; ``topics`` have so many queues each."""
    service = WriterService(Settings(store=root, store_config=config))
    service.address = "127.0.0.1:0"
    await service.start()
    for topic, queues in topics.items():
        await asyncio.to_thread(service.store.create_topic, topic, queues=queues)
    assert service.store.dedup is not None
    await asyncio.to_thread(service.store.dedup.prepare)
    return service
