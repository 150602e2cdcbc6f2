"""From the release before to this one and back, with chart and image of each, under load."""

from __future__ import annotations

import os

import pytest

from tests.e2e.cluster import (
    PREVIOUS_CHART,
    ClientPod,
    Release,
    is_kube_tool,
    namespace,
    run,
    small_values,
    version,
)

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.nightly,
    pytest.mark.skipif("KUBECONFIG" not in os.environ, reason="needs a cluster; set KUBECONFIG"),
    pytest.mark.skipif(not is_kube_tool(), reason="needs an image of the release before"),
    pytest.mark.timeout(600),
]
UNAVAILABLE_MOST_S = 60


def test_an_upgrade_from_the_previous_release_and_back_loses_and_doubles_nothing() -> None:
    values = small_values()
    before = {**values["image"], "tag": "previous"}
    with namespace() as name:
        previous = Release(name, "shop", values | {"image": before}, PREVIOUS_CHART)
        previous.install()
        produce, transact = _load(Release(name, "shop", values))
        present = Release(name, "shop", values)
        present.install()
        assert _tag(present) == version()
        _goes_on(produce)
        _goes_on(transact)
        run("helm", "-n", name, "rollback", "shop", "--wait", "--timeout=150s")
        assert _tag(present) == "previous"
        _goes_on(produce)
        _goes_on(transact)
        present.install()
        assert _tag(present) == version()
        _goes_on(produce)
        for pod in (produce, transact):
            pod.stop()
        found = produce.ends()[-1]
        assert (found["lost"], found["doubled"]) == ([], [])
        assert found["slowest"] < UNAVAILABLE_MOST_S
        assert transact.ends()[-1]["wrong"] == []


def _load(release: Release) -> tuple[ClientPod, ClientPod]:
    produce = release.client_pod("produce", "produce", TOPIC="upgrade")
    transact = release.client_pod("transact", "transact")
    produce.says("acked", 50)
    transact.says("begun", 5)
    return produce, transact


def _goes_on(pod: ClientPod) -> None:
    name, more = ("acked", 50) if pod.name == "produce" else ("begun", 5)
    pod.says(name, max(line.get(name, 0) for line in pod.lines()) + more)


def _tag(release: Release) -> str:
    """Tag of the image that the shard runs."""
    containers = release.get("pod", release.shard)["spec"]["containers"]
    [tag] = {str(each["image"]).rpartition(":")[2] for each in containers}
    return tag
