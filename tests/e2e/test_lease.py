"""Coordinators that stand for election by a Lease of a real cluster."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import httpx
import pytest
from kubernetes import client, config

from mqstore.coordinator.election import Lease, LeaseConflict
from mqstore.coordinator.http_log import FENCE
from mqstore.coordinator.kube_lease import KubeLease
from tests.services.cut_path import path_to
from tests.services.service_processes import Process
from tests.services.transaction_shard import Shard, begin, end, shard_at

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif("KUBECONFIG" not in os.environ, reason="needs a cluster; set KUBECONFIG"),
]
NAMESPACE = "default"


@pytest.fixture
def shard(tmp_path: Path) -> Iterator[Shard]:
    with shard_at(tmp_path) as found:
        yield found


@pytest.fixture
def lease() -> Iterator[str]:
    """A name that nobody else uses; what was made under it goes."""
    name = f"test-{uuid.uuid4().hex[:12]}"
    yield name
    load: Any = config
    load.load_kube_config()
    client.CoordinationV1Api().delete_namespaced_lease(name, NAMESPACE)


def candidate(shard: Shard, lease: str, **settings: Any) -> AbstractContextManager[Process]:
    return shard.coordinator(lease_name=lease, lease_namespace=NAMESPACE, **settings)


def held(lease: str) -> Lease:
    found = KubeLease(lease, NAMESPACE).read()
    assert found is not None
    return found


def test_a_lease_is_written_only_as_it_was_read(lease: str) -> None:
    store = KubeLease(lease, NAMESPACE)
    assert store.read() is None
    made = store.write(Lease("one", "http://one", 1))
    assert store.read() == made
    with pytest.raises(LeaseConflict):
        store.write(Lease("two", "http://two", 1))
    taken = store.write(Lease("two", "http://two", 2, version=made.version))
    with pytest.raises(LeaseConflict):
        store.write(made)
    assert store.read() == taken
    again = store.write(taken)
    assert again.version != taken.version


def test_a_leader_that_stood_still_wakes_up_and_cannot_decide(shard: Shard, lease: str) -> None:
    with candidate(shard, lease) as old, candidate(shard, lease) as new:
        transaction = begin(new, "a")
        assert shard.client.fence(FENCE).epoch == held(lease).epoch
        old.process.send_signal(signal.SIGSTOP)
        answers: list[httpx.Response] = []
        asked = threading.Thread(target=lambda: answers.append(end(old, transaction, "commit")))
        asked.start()
        while end(new, transaction, "rollback").status_code != 200:
            assert new.process.poll() is None
        old.process.send_signal(signal.SIGCONT)
        asked.join()
        assert answers[0].status_code in (409, 503)
        assert end(new, transaction, "rollback").json()["state"] == "rolled-back"
        assert shard.client.fence(FENCE).epoch == held(lease).epoch
    assert shard.bodies() == []


def test_a_leader_that_cannot_reach_the_store_gives_the_lease_up(shard: Shard, lease: str) -> None:
    with path_to(shard.urls["writer_url"]) as path, contextlib.ExitStack() as stack:
        cut_off: dict[str, Any] = {"writer_url": path.url, "lead_patience_s": 2}
        old = stack.enter_context(candidate(shard, lease, **cut_off))
        new = stack.enter_context(candidate(shard, lease))
        transaction = begin(old, "a")
        first = held(lease)
        path.cut()
        while end(old, transaction, "commit").status_code != 200:
            assert new.process.poll() is None
        assert held(lease).holder != first.holder
        assert held(lease).epoch > first.epoch
    assert shard.bodies() == ["a"]


def test_a_leader_that_ends_gives_the_lease_back(shard: Shard, lease: str) -> None:
    with candidate(shard, lease) as old, candidate(shard, lease) as new:
        transaction = begin(new, "a")
        first = held(lease).holder
        old.process.terminate()
        assert old.process.wait() == 0
        assert held(lease).holder != first
        while end(new, transaction, "commit").status_code != 200:
            assert new.process.poll() is None
    assert shard.bodies() == ["a"]
