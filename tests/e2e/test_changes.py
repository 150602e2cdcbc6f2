"""Upgrades, takeovers and drains under load."""

from __future__ import annotations

import os
import subprocess
from typing import Any

import pytest

from tests.e2e.cluster import Release, is_kube_tool, namespace, run, small_values, until
from tests.e2e.mixed_load import start_mixed_load

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif("KUBECONFIG" not in os.environ, reason="needs a cluster; set KUBECONFIG"),
    pytest.mark.timeout(600),
]


def test_an_upgrade_and_a_broken_one_lose_and_double_nothing(release: Release) -> None:
    load = start_mixed_load(release)
    values = release.values
    values["store"] = values["store"] | {"fileReservedTime": 71}
    release.install()
    load.goes_on()
    image = {**values["image"], "tag": "no-such-tag", "pullPolicy": "Never"}
    Release(release.namespace, release.name, values | {"image": image}).install(wait=False)
    until(lambda: "ErrImageNeverPull" in _waits_for(release), "the broken image is noticed")
    run("helm", "-n", release.namespace, "rollback", release.name, "--wait", "--timeout=120s")
    load.goes_on()
    load.assert_nothing_is_lost()


def _waits_for(release: Release) -> str:
    return release.kubectl("get", "pod", release.shard, "--ignore-not-found", "-o", "json")


@pytest.mark.skipif(not is_kube_tool(), reason="needs a node that may be drained")
def test_two_shards_answer_at_one_address_and_a_drain_takes_one_at_a_time() -> None:
    with namespace() as name:
        release = Release(name, "pair", small_values(shards=2))
        release.install()
        client_pod = release.client_pod("shards", "shards", NAME=release.full_name)
        client_pod.says("ready")
        try:
            assert "Cannot evict pod" in _drained(release)
            left = release.get("pods", "-l", f"{INSTANCE}=pair,{COMPONENT}=shard")["items"]
            assert [each["spec"]["nodeName"] for each in left if _is_ready(each)] == [NODE]
            made, tried, whole, partial = client_pod.ends()
        finally:
            run("kubectl", "uncordon", NODE)
        release.rolled_out()
    assert made["made"]["asked"] == [0, 1]
    for number, found in enumerate(tried["tried"]):
        assert (found["shard"], found["decided"], found["byId"]) == (number, number, number)
        assert found["pulled"]
    assert tried["tried"][0]["id"] != tried["tried"][1]["id"]
    assert whole["whole"] == {"bodies": ["0", "1"], "complete": True, "missing": []}
    [gone] = partial["partial"]["missing"]
    assert partial["partial"] == {"bodies": [str(1 - gone)], "complete": False, "missing": [gone]}


NODE = "kube-test"
INSTANCE = "app.kubernetes.io/instance"
COMPONENT = "app.kubernetes.io/component"


def _drained(release: Release) -> str:
    """Output of kubectl while a drain waits for the disruption budget."""
    selector = f"--pod-selector={INSTANCE}={release.name},{COMPONENT}=shard"
    words = ["kubectl", "drain", NODE, selector, "--delete-emptydir-data", "--ignore-daemonsets"]
    done = subprocess.run([*words, "--timeout=20s"], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    return done.stderr


def _is_ready(pod: dict[str, Any]) -> bool:
    return any(
        each["type"] == "Ready" and each["status"] == "True" for each in pod["status"]["conditions"]
    )
