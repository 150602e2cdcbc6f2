"""From the release before to this one and back, with chart and image of each, under load."""

from __future__ import annotations

import os

import pytest

from tests.e2e.cluster import (
    PREVIOUS_CHART,
    Release,
    is_kube_tool,
    namespace,
    run,
    small_values,
    version,
)
from tests.e2e.mixed_load import start_mixed_load

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.nightly,
    pytest.mark.skipif("KUBECONFIG" not in os.environ, reason="needs a cluster; set KUBECONFIG"),
    pytest.mark.skipif(not is_kube_tool(), reason="needs an image of the release before"),
    pytest.mark.timeout(600),
]


def test_an_upgrade_from_the_previous_release_and_back_loses_and_doubles_nothing() -> None:
    values = small_values()
    before = {**values["image"], "tag": "previous"}
    with namespace() as name:
        previous = Release(name, "shop", values | {"image": before}, PREVIOUS_CHART)
        previous.install()
        load = start_mixed_load(Release(name, "shop", values))
        present = Release(name, "shop", values)
        present.install()
        assert _tag(present) == version()
        load.goes_on()
        run("helm", "-n", name, "rollback", "shop", "--wait", "--timeout=150s")
        assert _tag(present) == "previous"
        load.goes_on()
        present.install()
        assert _tag(present) == version()
        load.assert_nothing_is_lost()


def _tag(release: Release) -> str:
    """Tag of the image that the shard runs."""
    containers = release.get("pod", release.shard)["spec"]["containers"]
    [tag] = {str(each["image"]).rpartition(":")[2] for each in containers}
    return tag
