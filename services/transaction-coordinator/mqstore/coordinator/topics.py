"""What store-writer says of topics: asked once in a while, for whoever begins a transaction."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from mqstore.client import Client, ClientError, ProblemError, Topic
from mqstore.service import problems
from mqstore.service.problems import Problem
from mqstore.storage.codec import topic_names
from mqstore.storage.layout import StoreFormat

KNOWN_S: Final = 1.0
"""How long what was told counts."""
KNOWN_MAX: Final = 1_000
THREADS: Final = 4
"""That ask at one time: a shard that does not answer keeps no other's threads."""
_WRITABLE: Final = 2


@dataclass(frozen=True, slots=True)
class _Known:
    topic: asyncio.Task[Topic]
    """Shared by all who wait for it."""
    until: float


class Topics:
    """Topics of one shard. Used on the event loop only."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._threads = ThreadPoolExecutor(THREADS, "topics")
        self._known: OrderedDict[str, _Known] = OrderedDict()

    def known(self, name: str) -> Topic | None:
        """What ``writable`` answers, where it need not ask. Raises Problem."""
        known = self._known.get(name)
        if known is None or time.monotonic() >= known.until or not known.topic.done():
            return None
        return known.topic.result()

    async def writable(self, name: str) -> Topic:
        """A topic that takes messages. Raises Problem, TopicNameError."""
        known = self._known.get(name)
        if known is None or time.monotonic() >= known.until:
            topic_names.check_send_topic(name, StoreFormat.V5_X)
            asking = asyncio.get_running_loop().create_task(self._writable(name))
            known = self._known[name] = _Known(asking, time.monotonic() + KNOWN_S)
            if len(self._known) > KNOWN_MAX:
                self._known.popitem(last=False)
        elif known.topic.done():
            return known.topic.result()
        return await asyncio.shield(known.topic)

    async def find(self, name: str) -> Topic | None:
        """A topic that takes messages; None where the shard has none of that name, or does not
        answer."""
        try:
            return await self.writable(name)
        except Problem:
            return None

    async def _writable(self, name: str) -> Topic:
        """Raises Problem, which nobody remembers."""
        try:
            asking = asyncio.get_running_loop().run_in_executor(self._threads, self._ask, name)
            topic = await asking
            if not topic.perm & _WRITABLE or topic.write_queues < 1:
                raise Problem(problems.TOPIC_NOT_WRITABLE, f"topic {name} takes no messages")
        except BaseException:
            self._known.pop(name, None)
            raise
        return topic

    def _ask(self, name: str) -> Topic:
        """Raises Problem."""
        try:
            return self._client.topic(name)
        except ProblemError as error:
            if error.type == "topic-unknown":
                raise Problem(problems.TOPIC_UNKNOWN, error.detail) from error
            raise Problem(problems.COORDINATOR_NOT_READY, str(error)) from error
        except ClientError as error:
            raise Problem(problems.COORDINATOR_NOT_READY, str(error)) from error
