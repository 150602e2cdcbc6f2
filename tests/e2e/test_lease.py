"""Candidates that stand for election by a Lease of a real cluster."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes import client, config

from mqstore.service.election import Lease, LeaseConflict, NotLeading
from mqstore.service.kube_lease import KubeLease, LeaseElection

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif("KUBECONFIG" not in os.environ, reason="needs a cluster; set KUBECONFIG"),
]
NAMESPACE = "default"


@pytest.fixture
def lease() -> Iterator[str]:
    """A name of its own; the Lease that was made under it is deleted."""
    name = f"test-{uuid.uuid4().hex[:12]}"
    yield name
    load: Any = config
    load.load_kube_config()
    client.CoordinationV1Api().delete_namespaced_lease(name, NAMESPACE)


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


def test_a_leader_that_ends_gives_the_lease_back_to_another_candidate(lease: str) -> None:
    old = LeaseElection(lease, NAMESPACE, "http://old")
    new = LeaseElection(lease, NAMESPACE, "http://new")
    old.start()
    first = _await_lead(old)
    new.start()
    try:
        with pytest.raises(NotLeading):
            new.term()
        old.stop()
        assert _await_lead(new) > first
        with pytest.raises(NotLeading):
            old.term()
    finally:
        new.stop()


def _await_lead(candidate: LeaseElection) -> int:
    """The next epoch of the candidate, once it leads."""
    until = time.monotonic() + 60
    while True:
        try:
            return candidate.next_epoch(0)
        except NotLeading:
            assert time.monotonic() < until
