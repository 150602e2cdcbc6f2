"""Candidates that stand for election by a Lease of a real cluster."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from kubernetes import client, config

from mqstore.service.election_thread import ElectionThread, clock
from mqstore.service.kube_lease import KubeLease
from mqstore.storage.replication.election import Addresses, Candidate, Lease, LeaseConflict, Margins

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
    addresses = Addresses("http://one:8081", "one:10912")
    made = store.write(Lease("one", 1, addresses, ("one", "two"), "two"))
    assert store.read() == made
    assert (made.addresses, made.in_sync, made.successor) == (addresses, ("one", "two"), "two")
    released = store.write(replace(made, holder="", former="one"))
    assert (released.holder, released.former) == ("", "one")
    with pytest.raises(LeaseConflict):
        store.write(Lease("two", 1))
    taken = store.write(Lease("two", 2, version=released.version))
    with pytest.raises(LeaseConflict):
        store.write(made)
    assert store.read() == taken
    assert (taken.addresses, taken.in_sync, taken.successor) == (Addresses(), (), "")
    released = store.write(replace(taken, holder="", in_sync=("two",)))
    assert released.version != taken.version
    assert store.read() == replace(released, duration_s=taken.duration_s)


def test_a_leader_that_ends_releases_the_lease_to_another_candidate(lease: str) -> None:
    old, new = (
        Candidate(
            *(KubeLease(lease, NAMESPACE), name, Addresses(), lambda _: None, Margins(), clock)
        )
        for name in ("old", "new")
    )
    first, second = (ElectionThread(each, lambda: None) for each in (old, new))
    first.start()
    _await_lead(old)
    second.start()
    try:
        _await_step(new)
        assert (new.leads, new.trouble) == (False, "old leads")
        first.stop()
        _await_lead(new)
        assert (old.leads, new.epoch) == (False, 2)
    finally:
        second.stop()


def _await_lead(candidate: Candidate) -> None:
    until = time.monotonic() + 60
    while not candidate.leads:
        assert time.monotonic() < until, candidate.trouble


def _await_step(candidate: Candidate) -> None:
    until = time.monotonic() + 60
    while candidate.lease is None:
        assert time.monotonic() < until, candidate.trouble
