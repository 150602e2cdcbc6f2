"""The role that a store-writer reports."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from mqstore.writer.replication.routes import ReplicationRoutes


@pytest.mark.parametrize("leads", [False, True])
def test_a_leader_is_one_that_may_acknowledge(leads: bool) -> None:
    """A store is open for writing before its replica leads, and after it has lost the lease."""
    store = SimpleNamespace(receiver=None, epochs=SimpleNamespace(newest=1))
    leader = SimpleNamespace(watch=None)
    replica = SimpleNamespace(leader=leader, following=None, elected=None, leads=leads)
    service: Any = SimpleNamespace(store=store, replica=replica)
    found = asyncio.run(ReplicationRoutes(service).replication())
    assert found.role == ("leader" if leads else "follower")
