"""A recovery that takes longer than every threshold of a probe is let be; one that hangs is not."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from mqstore.cli.kube import release as releases
from mqstore.cli.kube.kubectl import Kubectl
from mqstore.client import NewMessage
from mqstore.service.health import STALL_S
from tests.e2e.cluster import PATIENCE_S, Release, namespace, small_values, until

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.nightly,
    pytest.mark.skipif("KUBECONFIG" not in os.environ, reason="needs a cluster; set KUBECONFIG"),
    pytest.mark.timeout(900),
]
MESSAGES = 300_000
BATCH = 5_000
PROCESSOR = "30m"
"""Three hundredths of a core: what makes the recovery slow, and everything else."""
LIVENESS = {"periodSeconds": 1, "timeoutSeconds": 5, "failureThreshold": 6}
# No file says from where the log is known to be whole, so all of it is read; and then a kill.
FORGET = (
    "cd /var/lib/mqstore/store && rm -f mqstore/state mqstore/running.json checkpoint; kill -9 -1"
)

PIPE = "config/delayOffset.json"
"""A process that opens the pipe to read waits for a writer: the recovery does so after the queues.
The process works otherwise."""
HANG = f"cd /var/lib/mqstore/store && rm -f {PIPE} && mkfifo {PIPE}; kill -9 -1"
GET_HEALTH = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:8081/healthz/{}').read().decode())"


def test_a_recovery_beyond_every_threshold_is_not_killed() -> None:
    values = small_values()
    values["probes"]["liveness"] = LIVENESS
    with namespace() as name:
        release = Release(name, "slow", values)
        release.install()
        _fill(release)
        values["writer"]["resources"]["limits"]["cpu"] = PROCESSOR
        values["writer"]["resources"]["requests"]["cpu"] = PROCESSOR
        release.install()
        before = release.restarts("store-writer")
        release.in_container("store-writer", "sh", "-c", FORGET, check=False)
        until(lambda: release.restarts("store-writer") > before, "the writer is started again")
        until(release.is_ready, "the store is recovered", patience_s=600)
        assert release.restarts("store-writer") == before + 1
        recovered = _recovery(release)
        assert recovered["plan"]["path"] == "abnormal"
        assert recovered["plan"]["records"] >= MESSAGES
        threshold_s = LIVENESS["periodSeconds"] * LIVENESS["failureThreshold"]
        assert recovered["durationMs"] > 2_000 * threshold_s


def test_a_recovery_that_hangs_in_a_process_that_is_well_is_restarted() -> None:
    with namespace() as name:
        release = Release(name, "hung", small_values())
        release.install()
        with _client(release) as client:
            client.create_topic("t", queues=1)
            client.produce("t", [NewMessage(body="kept")], durability="sync")
        before = release.restarts("store-writer")
        release.in_container("store-writer", "sh", "-c", HANG, check=False)
        until(lambda: _stands_still(release), "the recovery hangs")
        assert _request(release, "live")["status"] == "starting", "and is live, for now"
        release.in_container("store-writer", "rm", f"/var/lib/mqstore/store/{PIPE}")
        assert release.restarts("store-writer") == before + 1
        until(
            lambda: release.restarts("store-writer") > before + 1,
            "the hung writer is restarted",
            patience_s=STALL_S + PATIENCE_S,
        )
        assert "failed liveness probe" in release.kubectl("get", "events")
        until(release.is_ready, "the store is recovered")
        with _client(release) as client:
            assert [each.body for each in client.pull("t", 0).messages] == ["kept"]


def _stands_still(release: Release) -> bool:
    seen, again = (_request(release, "startup") for _ in range(2))
    return bool(seen == again and seen.get("stage") == "queues")


def _request(release: Release, probe: str) -> Any:
    """Reply of store-writer to a probe; empty without one."""
    said = release.in_container("query", "python", "-c", GET_HEALTH.format(probe), check=False)
    return json.loads(said or "{}")


def _fill(release: Release) -> None:
    with _client(release) as client:
        client.create_topic("t")
        for first in range(0, MESSAGES, BATCH):
            bodies = (f"{number:0100}" for number in range(first, first + BATCH))
            client.produce("t", [NewMessage(body=body) for body in bodies])


def _recovery(release: Release) -> Any:
    """The report that the shard keeps."""
    path = "/var/lib/mqstore/store/mqstore/recovery.json"
    return json.loads(release.in_container("query", "cat", path))


def _client(release: Release) -> Any:
    found = releases.find(Kubectl((f"--namespace={release.namespace}",)), None)
    return found.client(found.shards()[0])
