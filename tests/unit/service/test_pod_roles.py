"""Labels of a shard's pods, at an API server that fails at times."""

from __future__ import annotations

from typing import Any

import pytest
from kubernetes.client.exceptions import ApiException

from mqstore.service import pod_roles
from mqstore.service.pod_roles import PodRoles


class Server:
    """An API server that keeps the labels of pods."""

    def __init__(self) -> None:
        self.labels: dict[str, str] = {}
        self.calls: list[str] = []
        self.failures: dict[str, int] = {}

    def patch_namespaced_pod(self, name: str, namespace: str, body: Any, **_: Any) -> None:
        self.calls.append(name)
        if status := self.failures.get(name):
            raise ApiException(status=status)
        self.labels[name] = body["metadata"]["labels"]["mqstore/role"]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    found = Server()
    monkeypatch.setattr(pod_roles, "api_client", lambda: None)
    monkeypatch.setattr("kubernetes.client.CoreV1Api", lambda _: found)
    return found


def test_a_leader_labels_itself_first_and_then_the_others(server: Server) -> None:
    roles = PodRoles(["a", "b", "c"], "b")
    roles.lead()
    assert server.calls[0] == "b"
    assert server.labels == {"a": "follower", "b": "leader", "c": "follower"}
    roles.retry()
    assert len(server.calls) == 3


def test_a_label_that_could_not_be_set_is_set_later(server: Server) -> None:
    server.failures = {"a": 500, "c": 404}
    roles = PodRoles(["a", "b", "c"], "b")
    roles.lead()
    assert server.labels == {"b": "leader"}
    server.failures = {}
    roles.retry()
    assert server.labels == {"a": "follower", "b": "leader"}  # c, when it starts, labels itself


def test_a_follower_labels_itself_only(server: Server) -> None:
    PodRoles(["a", "b"], "b").follow()
    assert server.labels == {"b": "follower"}
