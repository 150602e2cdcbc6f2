"""The chart installs a release in a namespace that enforces the restricted profile."""

from __future__ import annotations

import os
import uuid

import pytest

from tests.e2e.cluster import Release, until

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif("KUBECONFIG" not in os.environ, reason="needs a cluster; set KUBECONFIG"),
    pytest.mark.timeout(600),
]


def test_helm_test_produces_finds_and_transacts_through_the_services(release: Release) -> None:
    said = release.test()
    assert "Phase:          Succeeded" in said
    assert "found by its key" in said
    assert "was committed" in said


def test_query_cannot_write_to_the_volume_that_it_shares(release: Release) -> None:
    store = "/var/lib/mqstore/store"
    assert "lock" in release.in_container("query", "ls", store)
    refused = release.in_container("query", "sh", "-c", f"touch {store}/x 2>&1 || true")
    assert "Read-only file system" in refused


def test_containers_have_an_unprivileged_user_an_init_and_a_read_only_root(
    release: Release,
) -> None:
    for container in ("store-writer", "query"):
        assert release.in_container(container, "id", "-u").strip() == "1000"
        first = release.in_container(container, "cat", "/proc/1/comm").strip()
        assert first == "tini"
        refused = release.in_container(container, "sh", "-c", "touch /x 2>&1 || true")
        assert "Read-only file system" in refused
        assert release.in_container(container, "mqstore-entrypoint", "health") == ""


def test_all_coordinators_are_ready(release: Release) -> None:
    until(lambda: _ready_coordinators(release) == 2, "two coordinators are ready")


def _ready_coordinators(release: Release) -> int:
    found = release.get("deployment", f"{release.full_name}-coordinator", "--ignore-not-found")
    return int(found.get("status", {}).get("readyReplicas", 0))


def test_a_pod_that_is_not_meant_to_gets_through_to_nothing(release: Release) -> None:
    name = uuid.uuid4().hex[:8]
    inside = release.client_pod(f"in-{name}", "knock", PATIENCE_S="60")
    outside = release.client_pod(f"out-{name}", "knock", labelled=False)
    assert inside.ends()[-1] == {"open": ["WRITER_URL", "QUERY_URL", "COORDINATOR_URL"]}
    assert outside.ends()[-1] == {"open": []}


def test_a_writer_that_hangs_is_restarted_and_nothing_is_lost(release: Release) -> None:
    client = release.client_pod(f"hang-{uuid.uuid4().hex[:8]}", "produce", TOPIC="hang")
    client.says("acked", 50)
    restarts = release.restarts("store-writer")
    release.in_container("store-writer", "sh", "-c", "kill -STOP -1", check=False)
    until(lambda: release.restarts("store-writer") > restarts, "the hung writer is restarted")
    acked = max(line["acked"] for line in client.lines() if "acked" in line)
    client.says("acked", acked + 100)
    client.stop()
    assert_nothing_missing(client.ends()[-1])


def assert_nothing_missing(found: dict[str, object]) -> None:
    assert found["lost"] == []
    assert found["doubled"] == []
