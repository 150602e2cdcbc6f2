"""An API server accepts the chart's resources for Prometheus' operator, ingresses and gateways."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.cluster import CHART, Release, go_module, is_kube_tool, namespace, run, small_values

CRDS = {
    "github.com/prometheus-operator/prometheus-operator@v0.85.0": (
        "example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml",
        "example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml",
    ),
    "sigs.k8s.io/gateway-api@v1.3.0": (
        "config/crd/standard/gateway.networking.k8s.io_httproutes.yaml",
    ),
}
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.nightly,
    pytest.mark.skipif("KUBECONFIG" not in os.environ, reason="needs a cluster; set KUBECONFIG"),
    pytest.mark.skipif(not is_kube_tool(), reason="needs a cluster that may be given CRDs"),
    pytest.mark.skipif(shutil.which("go") is None, reason="needs go, whose proxy has the CRDs"),
    pytest.mark.timeout(300),
]
VALUES: dict[str, Any] = {
    "monitoring": {
        "serviceMonitor": {"enabled": True, "labels": {"team": "shop"}},
        "rules": {"enabled": True},
        "dashboard": {"enabled": True},
    },
    "ingress": {
        "enabled": True,
        "className": "nginx",
        "writerHost": "writer.example.org",
        "queryHost": "query.example.org",
        "coordinatorHost": "coordinator.example.org",
        "tlsSecret": "cert",
    },
    "gateway": {
        "enabled": True,
        "parentRefs": [{"name": "all", "namespace": "gateways", "sectionName": "https"}],
        "writerHost": "writer.example.org",
        "queryHost": "query.example.org",
        "coordinatorHost": "coordinator.example.org",
    },
}


@pytest.fixture
def crds() -> Iterator[None]:
    """Their own, as Go modules ship them; they go again."""
    files = [str(go_module(module) / path) for module, paths in CRDS.items() for path in paths]
    made = [run("kubectl", "apply", "--server-side", "-f", file, "-o", "name") for file in files]
    names = " ".join(made).split()
    run("kubectl", "wait", "--for=condition=Established", *names, "--timeout=60s")
    yield
    run("kubectl", "delete", *names)


def test_the_api_server_takes_every_field_of_what_is_for_others(crds: None) -> None:
    with namespace() as name:
        release = Release(name, "shop", small_values(**VALUES))
        words = ("helm", "template", "shop", str(CHART), "-n", name, "-f", "-")
        rendered = run(*words, given=json.dumps(release.values))
        strict = ("apply", "--dry-run=server", "--validate=strict", "-f", "-")
        release.kubectl(*strict, given=rendered)
        release.install(wait=False)
        [monitor] = release.get("servicemonitors")["items"]
        assert [each["port"] for each in monitor["spec"]["endpoints"]] == [
            "writer",
            "query",
            "coordinator",
        ]
        _finds_the_services(release, monitor["spec"]["selector"]["matchLabels"])
        [rules] = release.get("prometheusrules")["items"]
        assert len(rules["spec"]["groups"][0]["rules"]) > 10
        assert len(release.get("ingresses")["items"][0]["spec"]["rules"]) == 3
        assert len(release.get("httproutes")["items"]) == 3


def _finds_the_services(release: Release, labels: dict[str, str]) -> None:
    """Each shard once, and the coordinators."""
    selector = ",".join(f"{name}={value}" for name, value in labels.items())
    found = release.get("services", "-l", selector)["items"]
    names = sorted(each["metadata"]["name"] for each in found)
    assert names == [f"{release.full_name}-coordinator", f"{release.full_name}-shards"]
